// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// busyVariable makes this program a busy loop.
const busyVariable = "DROVER_BUSY_LOOP"

// underLoad runs something beside so many busy loops; an empty number is none. They have the same
// priority as what is run.
func underLoad(number string, run func() error) (err error) {
	loops := 0
	if number != "" {
		if loops, err = strconv.Atoi(number); err != nil || loops < 0 {
			return fmt.Errorf("LOAD=%q is not a number of busy loops", number)
		}
	}
	for range loops {
		stop, err := busyLoop()
		if err != nil {
			return err
		}
		defer func() { _ = stop() }() // it ends in any case: with its input
	}
	if loops > 0 {
		fmt.Printf("%d busy loops run beside the tests\n", loops)
	}
	return run()
}

// busyLoop starts one. It ends with this process, whatever becomes of that.
func busyLoop() (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	loop := exec.Command(self)
	loop.Env = append(os.Environ(), busyVariable+"=1")
	input, err := loop.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := loop.Start(); err != nil {
		return nil, errors.Join(err, input.Close())
	}
	return func() error { return errors.Join(input.Close(), loop.Wait()) }, nil
}

// beBusy takes a processor until the input ends, and then ends the process.
func beBusy(input io.Reader) {
	go func() {
		_, _ = io.Copy(io.Discard, input)
		os.Exit(0)
	}()
	for { //nolint:staticcheck // to spin is what it is for
	}
}
