// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/test/vm/powercut/say"
)

// bootLimit is how long the agent may take to load without an API server, on an emulated processor
// of a busy machine.
const bootLimit = 4 * time.Minute

// lookEvery is between two looks at something that has no event.
const lookEvery = 10 * time.Millisecond

// judge says what the last cut has left: whether all files are whole, and which build the agent
// loads from them.
func (n *node) judge(ctx context.Context) (say.Judgement, error) {
	damaged, err := damage()
	if err != nil {
		return say.Judgement{}, err
	}
	found := say.Judgement{Damaged: damaged}
	if err := n.open(ctx); err != nil {
		return found, err
	}
	held, err := n.store.Held()
	if err != nil {
		return found, err
	}
	for id := range held {
		if _, err := n.store.Open(id); err != nil {
			found.Damaged = append(found.Damaged, err.Error())
		}
	}
	aside, err := os.ReadDir(filepath.Join(disk, "drover/store/damaged"))
	if err != nil {
		return found, err
	}
	for _, entry := range aside {
		found.Damaged = append(found.Damaged, "store/damaged/"+entry.Name())
	}
	found.Live, found.Held, err = n.bootOnce(ctx, held)
	return found, err
}

// bootOnce has the agent load what the record orders, until something is live or nothing has to be.
func (n *node) bootOnce(ctx context.Context, held map[string]string) (live int, why string, err error) {
	if n.Worked == 0 {
		return 0, "nothing was loaded before the cut", nil
	}
	a, err := agent.New(n.parts)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	booted := make(chan error, 1)
	go func() { booted <- a.Boot(ctx) }()
	err = wait.PollUntilContextTimeout(ctx, lookEvery, bootLimit, true, func(context.Context) (bool, error) {
		var err error
		if live, err = n.live(n.Worked, n.Issued); live == 0 && err == nil {
			why, err = n.heldBack(held)
		}
		return live != 0 || why != "", err
	})
	if wait.Interrupted(err) {
		err = nil // nothing is live, and nothing holds it back: the host counts that
	}
	cancel()
	return live, why, errors.Join(err, <-booted)
}

// heldBack says that the crash fuse holds back all that the agent may load: power that is cut in a
// load, or soon after one, looks like a crash of it. What the agent may load are the order of its
// record and what its journal says worked last, which it need not have had the time to report.
func (n *node) heldBack(held map[string]string) (string, error) {
	recorded, worked, err := agentKnows()
	if err != nil || worked < n.Worked {
		return "", err // it has lost what it reported
	}
	for _, order := range []int{recorded, worked} {
		if _, ok := held[deliveryID(order)]; !ok && order != worked {
			continue // not delivered; what worked last has to be there
		}
		// A hold without an end is of a load on its way: the last boot's, which is yet to be judged, or
		// the one that is awaited.
		if hold, ok := n.fuse.Allowed(n.fuseBuild(order), time.Now()); ok || hold.Until.IsZero() {
			return "", nil
		}
	}
	return "the crash fuse holds back what may be loaded", nil
}

// agentKnows reads from the agent's files which order its record names, and which one worked last.
func agentKnows() (recorded, worked int, err error) {
	var record struct {
		Content struct {
			Spec v1beta1.NodeModulesConfigSpec
		}
	}
	var journal struct {
		Content struct {
			Worked map[string]struct{ DeliveryID string }
		}
	}
	for name, into := range map[string]any{"record.json": &record, "journal.json": &journal} {
		content, err := os.ReadFile(filepath.Join(disk, "drover/agent", name))
		if err != nil {
			return 0, 0, err
		}
		if err := json.Unmarshal(content, into); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	for i := range record.Content.Spec.Modules {
		recorded = orderOf(record.Content.Spec.Modules[i].Delivery.ID)
	}
	for _, w := range journal.Content.Worked {
		worked = orderOf(w.DeliveryID)
	}
	return recorded, worked, nil
}

var digestName = regexp.MustCompile(`^[0-9a-f]{64}$`)

// damage names what is not whole of the agent's files, and what an agent moved aside.
func damage() ([]string, error) {
	var damaged []string
	err := filepath.WalkDir(disk, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		rel := strings.TrimPrefix(name, disk+"/")
		if why := broken(name, rel); why != nil {
			damaged = append(damaged, rel+": "+why.Error())
		}
		return nil
	})
	return damaged, err
}

// broken says what is wrong with one file. Files that were being written have names of their own,
// and need not be whole.
func broken(name, rel string) error {
	base := filepath.Base(name)
	switch {
	case strings.HasSuffix(base, ".aside"), strings.HasSuffix(base, ".damaged"):
		return errors.New("was moved aside")
	case strings.HasPrefix(rel, "firmware/"):
		if !digestName.MatchString(base) {
			return nil
		}
		content, err := os.ReadFile(name)
		if sum := sha256.Sum256(content); err == nil && hex.EncodeToString(sum[:]) != base {
			err = fmt.Errorf("%d bytes are another content", len(content))
		}
		return err
	case !strings.HasSuffix(base, ".json"), strings.Contains(rel, "/incoming/"):
		return nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var sealed struct {
		SHA256         string
		Content, State json.RawMessage
	}
	if err := json.Unmarshal(content, &sealed); err != nil {
		return fmt.Errorf("%d bytes: %w", len(content), err)
	}
	sum := sha256.Sum256(append(sealed.Content, sealed.State...))
	if sealed.SHA256 != "" && sealed.SHA256 != hex.EncodeToString(sum[:]) {
		return errors.New("content and digest differ")
	}
	return nil
}
