// SPDX-License-Identifier: Apache-2.0

// The theme has fonts of its own, which a page about a command line does not need.
import theme from 'vitepress/theme-without-fonts'
import './style.css'

export default theme
