// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ichor.maesh.dev/hub/cmd/ichor/command"
)

// commandPage describes every command of ichor.
func commandPage() []byte {
	root := command.New(command.Surroundings{Getenv: func(string) string { return "" }}, false)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	p := newPage("The command line", "Every command of `ichor`. [The protocol](proto.md) says what is in the fields of `-o json`.")
	p.say("\n%s\n", indented(root.Long))
	p.say("\n## Flags of every command\n\n%s\n", flagBlock(root.PersistentFlags()))
	commands(p, root)
	return p.Bytes()
}

func commands(p *page, cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		if child.Hidden || child.Name() == "help" {
			continue
		}
		if child.HasAvailableSubCommands() {
			p.say("\n## %s\n\n%s.\n", child.CommandPath(), child.Short)
			if len(child.Aliases) > 0 {
				p.say("\nAlso: `%s`.\n", strings.Join(child.Aliases, "`, `"))
			}
			commands(p, child)
			continue
		}
		describe(p, child)
	}
}

func describe(p *page, cmd *cobra.Command) {
	level := "###"
	if cmd.Parent() == cmd.Root() {
		level = "##"
	}
	p.say("\n%s %s\n\n    %s\n", level, cmd.CommandPath(), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	if cmd.Parent().Name() == "completion" {
		text = cmd.Short + "."
	}
	p.say("\n%s\n", strings.TrimSpace(text))
	if cmd.Example != "" {
		p.say("\n```\n%s\n```\n", strings.TrimRight(cmd.Example, "\n"))
	}
	if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
		cmd.InitDefaultHelpFlag()
		p.say("\n%s\n", flagBlock(flags))
	}
}

// flagBlock are flags as the help of a command prints them.
func flagBlock(flags *pflag.FlagSet) string {
	if help := flags.Lookup("help"); help != nil {
		help.Hidden = true // Every command has it.
	}
	var block bytes.Buffer
	flags.SetOutput(&block)
	flags.PrintDefaults()
	return "```\n" + strings.TrimRight(block.String(), "\n") + "\n```"
}

// indented keeps the lines of a text that are meant to stand one below the other.
func indented(text string) string {
	var lines []string
	code := false
	for line := range strings.SplitSeq(text, "\n") {
		if begins := strings.HasPrefix(line, "  "); begins != code {
			lines = append(lines, "```")
			code = begins
			if !begins && line == "" {
				lines = append(lines, line)
				continue
			}
		}
		lines = append(lines, line)
	}
	if code {
		lines = append(lines, "```")
	}
	return strings.Join(lines, "\n")
}
