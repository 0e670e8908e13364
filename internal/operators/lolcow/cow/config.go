// SPDX-License-Identifier: Apache-2.0

// Package cow is a cow that says a greeting: in the terminal, and on a web page that follows a
// greeting that changes.
package cow

import (
	"fmt"
	"strconv"
	"strings"
)

// DefaultPort is where the page is served when the environment names no port.
const DefaultPort = 8080

// Config is what one run of the program does.
type Config struct {
	// Greeting that the cow says.
	Greeting string
	// Port of the web server, on all addresses; 0 is any free one.
	Port int
	// Once: the cow speaks in the terminal, and no page is served.
	Once bool
}

// Configure reads a program's arguments and environment. Arguments are the greeting, word for word:
// none of them is an option, for a cow must be able to say "--help" and a pod must not end because
// of what its cow says. Without a greeting the cow tells a fortune; pick chooses one of n.
//
// The environment may hold PORT (0 to 65535) and LOLCOW_ONCE (a boolean as strconv.ParseBool reads
// it).
func Configure(args []string, getenv func(string) string, pick func(n int) int) (Config, error) {
	c := Config{Greeting: strings.ToValidUTF8(strings.Join(args, " "), "\uFFFD"), Port: DefaultPort}
	// As a page cannot show the difference, lines end everywhere as they do in HTML.
	c.Greeting = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(c.Greeting)
	if c.Greeting == "" {
		c.Greeting = fortunes[pick(len(fortunes))]
	}
	if text := getenv("PORT"); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return Config{}, fmt.Errorf("PORT is %q: give a number from 0 to 65535, or leave it out for %d", text, DefaultPort)
		}
		c.Port = int(port)
	}
	if text := getenv("LOLCOW_ONCE"); text != "" {
		once, err := strconv.ParseBool(text)
		if err != nil {
			return Config{}, fmt.Errorf("LOLCOW_ONCE is %q: give true or false", text)
		}
		c.Once = once
	}
	return c, nil
}
