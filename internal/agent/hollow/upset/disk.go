// SPDX-License-Identifier: Apache-2.0

package upset

// HalfOfMemory is the size of a disk that holds as much as half of the machine's memory.
const HalfOfMemory int64 = 0
