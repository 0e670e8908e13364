// SPDX-License-Identifier: Apache-2.0

// Package audit reads the API server's audit log, which is where write budgets are counted.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Request is one finished request.
type Request struct {
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
		// Extra is what else the API server knows of the user, such as an agent's node.
		Extra map[string][]string `json:"extra"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	// Received is when the API server got the request, Done when it had answered.
	Received time.Time `json:"requestReceivedTimestamp"`
	Done     time.Time `json:"stageTimestamp"`
	// Body is what was sent and Object what was answered, where the audit policy keeps them.
	Body   json.RawMessage `json:"requestObject"`
	Object json.RawMessage `json:"responseObject"`
}

// Resource is the plural name with the subresource, for example "nodemodulesconfigs/status".
func (r Request) Resource() string {
	if r.ObjectRef.Subresource == "" {
		return r.ObjectRef.Resource
	}
	return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
}

// IsWrite says whether the request was to change something (Leases and token requests excepted).
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return r.ObjectRef.Resource != "leases" && r.ObjectRef.Subresource != "token"
	}
	return false
}

// Ours says whether a component of Drover made the request: its operator, its hub, a device
// operator, or an agent.
func (r Request) Ours() bool {
	agent, _, _ := strings.Cut(r.UserAgent, "/")
	return agent == "drover-agent" || agent == "drover-hub" || strings.HasSuffix(agent, "-operator")
}

// Log is an audit log that is read piece by piece.
type Log struct {
	path   string
	offset int64
}

// Open starts reading at the present end of the file.
func Open(path string) (*Log, error) {
	end, err := End(path)
	return &Log{path: path, offset: end}, err
}

// End is the offset behind the last whole line: a line that is being written reaches the file in
// pieces, and its length counts at once.
func End(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open the audit log: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("find the end of the audit log: %w", err)
	}
	end := info.Size()
	for piece := make([]byte, 64<<10); end > 0; {
		start := max(0, end-int64(len(piece)))
		n, err := f.ReadAt(piece[:end-start], start)
		if err != nil {
			return 0, fmt.Errorf("find the end of the audit log: %w", err)
		}
		if i := bytes.LastIndexByte(piece[:n], '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

// Whole starts reading at the beginning of the file.
func Whole(path string) *Log { return &Log{path: path} }

// Next returns the requests that were logged since the last call. A line that is still being
// written is left for the next call.
func (l *Log) Next() ([]Request, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("go on in the audit log: %w", err)
	}
	var requests []Request
	in := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		l.offset += int64(len(line))
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read the audit log at byte %d: %w", l.offset, err)
		}
		requests = append(requests, r)
	}
}

// OurWrites returns the writes of Drover's components among the requests.
func OurWrites(requests []Request) []Request {
	var writes []Request
	for _, r := range requests {
		if r.Ours() && r.IsWrite() {
			writes = append(writes, r)
		}
	}
	return writes
}

// Count groups requests by verb and resource.
func Count(requests []Request) map[string]int {
	counts := map[string]int{}
	for _, r := range requests {
		counts[r.Verb+" "+r.Resource()]++
	}
	return counts
}
