// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"crypto/tls"
	"net"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// metricsOptions say how metrics are served. They name clusters, machines and people's operations: beyond this machine they are encrypted, and
// for those alone whom the management API lets get /metrics.
func metricsOptions(o Options) metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.MetricsBindAddress}
	if host, _, err := net.SplitHostPort(o.MetricsBindAddress); err != nil || loopback(host) {
		return options // It is served to nobody, or to this machine.
	}
	options.SecureServing = true
	options.FilterProvider = filters.WithAuthenticationAndAuthorization
	options.TLSOpts = append(options.TLSOpts, func(config *tls.Config) {
		config.MinVersion = tls.VersionTLS12
		config.NextProtos = []string{"http/1.1"} // One request at a time is what a scrape is.
		if o.Serve != nil && o.Serve.Certificates != nil {
			config.GetCertificate = o.Serve.Certificates.GetCertificate
		}
	})
	return options
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
