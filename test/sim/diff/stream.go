// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// stream reads a watch's events as they come.
type stream struct {
	events chan object
	cancel context.CancelFunc
	done   chan struct{}
}

func newStream(body io.ReadCloser, cancel context.CancelFunc) *stream {
	s := &stream{events: make(chan object, 1024), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer close(s.events)
		defer func() { _ = body.Close() }() // only read from
		decoder := json.NewDecoder(body)
		for {
			var event object
			if decoder.Decode(&event) != nil {
				return
			}
			select {
			case s.events <- event:
			case <-time.After(watchTimeout): // never read
				return
			}
		}
	}()
	return s
}

func (s *stream) close() {
	s.cancel()
	<-s.done
}

// collect reads events up to one about an object that has the name step.until, up to the end of the
// initial events for "bookmark", or as many as "count:N" says; and a moment longer, so that an
// event that came twice is seen.
func (s *side) collect(step step) (*answer, error) {
	a := &answer{asked: "events of the watch up to " + step.until, normal: object{"events": []any{}}}
	if s.stream == nil {
		a.normal = object{"events": "no watch"}
		return a, nil
	}
	var events []any
	timer := time.NewTimer(watchTimeout)
	defer timer.Stop()
	for {
		select {
		case event, ok := <-s.stream.events:
			if !ok {
				a.normal = object{"events": append(events, "the watch ended")}
				return a, nil
			}
			last, kept := s.event(event, step.until)
			if kept != nil {
				events = append(events, kept)
			}
			if last || until(step, len(events)) {
				a.normal = object{"events": append(events, s.rest()...)}
				return a, nil
			}
		case <-timer.C:
			a.normal = object{"events": append(events, "no last event in time")}
			return a, nil
		}
	}
}

// until is true when there are as many events as the request waits for.
func until(step step, events int) bool { return step.until == fmt.Sprintf("count:%d", events) }

// rest are events that follow the last one at once.
func (s *side) rest() []any {
	var more []any
	timer := time.NewTimer(2 * time.Millisecond)
	defer timer.Stop()
	for {
		select {
		case event, ok := <-s.stream.events:
			if !ok {
				return append(more, "the watch ended")
			}
			if _, kept := s.event(event, ""); kept != nil {
				more = append(more, kept)
			}
		case <-timer.C:
			return more
		}
	}
}

// event is an event as it is compared, nil if it is not, and whether it is the last one awaited.
func (s *side) event(event object, until string) (bool, any) {
	body, _ := event["object"].(object)
	if event["type"] == "BOOKMARK" {
		annotations, _ := field(body, "metadata", "annotations").(object)
		if annotations["k8s.io/initial-events-end"] == nil {
			return false, nil
		}
		version, _ := field(body, "metadata", "resourceVersion").(string)
		copied := merged(body, object{"metadata": object{"resourceVersion": s.listVersion(version)}})
		return until == "bookmark", object{"type": "BOOKMARK", "object": copied}
	}
	name, _ := field(body, "metadata", "name").(string)
	ended := event["type"] == "ERROR"
	return ended || until != "" && name == until, s.normal(event)
}
