// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/test/vm/artifacts"
)

// guest answers on the other end of a console as the guest's program does:
// every script gets its own text and code 3.
func guest(conn net.Conn, noise string) error {
	if _, err := fmt.Fprintf(conn, "%sready 11111111-2222\n", noise); err != nil {
		return err
	}
	requests := bufio.NewScanner(conn)
	for requests.Scan() {
		fields := strings.Fields(requests.Text())
		script, err := base64.StdEncoding.DecodeString(fields[2])
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		packer := gzip.NewWriter(&packed)
		if _, err := packer.Write(script); err != nil {
			return err
		}
		if err := packer.Close(); err != nil {
			return err
		}
		answer := base64.StdEncoding.EncodeToString(packed.Bytes())
		if _, err := fmt.Fprintf(conn, "%sanswer %s 3 %s\n", noise, fields[0], answer); err != nil {
			return err
		}
	}
	return requests.Err()
}

func TestConsoleReturnsOutputAndCodeInSpiteOfNoise(t *testing.T) {
	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- guest(theirs, "[    1.0] some message\r\n\n\x1b[2J\x1b[01;01H\x1b[=3h") }()
	console := newConsole(ours)
	script := "echo 'quotes \" and lines'\n" + strings.Repeat("x", 10000)
	output, code, err := console.Run(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	if output != script || code != 3 {
		t.Errorf("got code %d and %d bytes", code, len(output))
	}
	if console.BootID() != "11111111-2222" {
		t.Errorf("boot ID %q", console.BootID())
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestConsoleSaysThatTheMachineStopped(t *testing.T) {
	ours, theirs := net.Pipe()
	console := newConsole(ours)
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, _, err := console.Run(ctx, "true"); !errors.Is(err, errConsoleClosed) {
		t.Errorf("error %v", err)
	}
}

func TestGuestFilesNameTheGatewayAndNotTheHost(t *testing.T) {
	config := Config{
		Name: "vm-1", Dir: t.TempDir(), Index: 2, Server: "https://127.0.0.1:6443", CA: []byte("PEM"), Token: "secret", RegistryPort: 5000,
		Peers:       []int{7001, 7002},
		KubeletPort: 4321, Labels: map[string]string{"b": "2", "a": "1"},
		Files: map[string]artifacts.File{"/etc/kubernetes/manifests/pod.json": {Content: []byte("{}")}},
	}
	if err := config.complete(); err != nil {
		t.Fatal(err)
	}
	files, err := config.guestFiles()
	if err != nil {
		t.Fatal(err)
	}
	wantEnv := "NODE_NAME=vm-1\nNODE_IP=10.0.2.17\nNODE_LABELS=a=1,b=2\nAPI_ADDRESS=10.0.2.2:6443\n" +
		"SERVICE_IP=10.0.0.1\nREGISTRY_ADDRESS=10.0.2.2:5000\nPEERS='7001 7002'\n"
	if diff := cmp.Diff(wantEnv, string(files["overlay/etc/node/env"].Content)); diff != "" {
		t.Error(diff)
	}
	if got := string(files["overlay/etc/containerd/certs.d/_default/hosts.toml"].Content); !strings.Contains(got,
		`[host."http://10.0.2.2:5000"]`) {
		t.Errorf("hosts.toml is %s", got)
	}
	var kubelet struct {
		Port          int    `json:"port"`
		StaticPodPath string `json:"staticPodPath"`
	}
	if err := json.Unmarshal(files["overlay/etc/kubernetes/kubelet.json"].Content, &kubelet); err != nil {
		t.Fatal(err)
	}
	if kubelet.Port != 4321 || kubelet.StaticPodPath != "/etc/kubernetes/manifests" {
		t.Errorf("kubelet's configuration is %+v", kubelet)
	}
	if _, found := files["overlay/etc/kubernetes/manifests/pod.json"]; !found {
		t.Error("the extra file is missing")
	}
}

func TestConfigRefuses(t *testing.T) {
	for name, config := range map[string]Config{
		"no name":         {Dir: "d"},
		"no folder":       {Name: "n"},
		"index too large": {Name: "n", Dir: "d", Index: 201},
	} {
		t.Run(name, func(t *testing.T) {
			if err := config.complete(); err == nil {
				t.Error("accepted")
			}
		})
	}
	config := Config{Name: "n", Dir: "d", Files: map[string]artifacts.File{"relative": {}}}
	if _, err := config.guestFiles(); err == nil {
		t.Error("a relative path was accepted")
	}
}
