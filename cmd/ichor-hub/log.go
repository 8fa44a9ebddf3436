// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// logOptions are the flags of the log.
type logOptions struct {
	level  string
	format string
}

func (o *logOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.level, "log-level", "info", "least severe messages to log: debug, info, warn or error")
	flags.StringVar(&o.format, "log-format", "text", "format of the log: text or json")
}

// setUp makes the log that the flags ask for that of the whole process.
func (o *logOptions) setUp(out io.Writer) (logr.Logger, error) {
	var options slog.HandlerOptions
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.level)); err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level: %w", err)
	}
	options.Level = level

	var handler slog.Handler
	switch o.format {
	case "text":
		handler = slog.NewTextHandler(out, &options)
	case "json":
		handler = slog.NewJSONHandler(out, &options)
	default:
		return logr.Logger{}, fmt.Errorf("--log-format: %q is neither text nor json", o.format)
	}
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client"))
	return log, nil
}
