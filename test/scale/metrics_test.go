// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metrics is what a hub's metrics endpoint tells at one moment.
type metrics map[string]*dto.MetricFamily

func scrape(ctx context.Context, address string) (metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of the hub: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // It was only read.
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of the hub: %w", err)
	}
	return families, nil
}

// counted is the sum of a counter over the series that have a label.
func (m metrics) counted(name, label, value string) (sum float64) {
	for _, series := range m.series(name, label, value) {
		sum += series.GetCounter().GetValue()
	}
	return sum
}

func (m metrics) series(name, label, value string) (found []*dto.Metric) {
	for _, series := range m[name].GetMetric() {
		if slices.ContainsFunc(series.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == value }) {
			found = append(found, series)
		}
	}
	return found
}

// bucket is one bucket of a histogram: how many observations were at most as long as its bound.
type bucket struct {
	bound float64
	count uint64
}

// histogram are the buckets of a histogram, lowest first.
func (m metrics) histogram(name, label, value string) (buckets []bucket) {
	for _, series := range m.series(name, label, value) {
		for _, b := range series.GetHistogram().GetBucket() {
			buckets = append(buckets, bucket{b.GetUpperBound(), b.GetCumulativeCount()})
		}
	}
	return buckets
}

// since are the observations that came after an earlier reading of the same histogram.
func since(before, after []bucket) []bucket {
	grown := slices.Clone(after)
	for i := range grown {
		if i < len(before) {
			grown[i].count -= before[i].count
		}
	}
	return grown
}

// bound is the bound of the bucket that a quantile falls into: the quantile is not longer than that.
func bound(buckets []bucket, quantile float64) float64 {
	if len(buckets) == 0 {
		return 0
	}
	all := buckets[len(buckets)-1].count
	for _, b := range buckets {
		if float64(b.count) >= quantile*float64(all) {
			return b.bound
		}
	}
	return buckets[len(buckets)-1].bound
}

// quantile is the smallest duration that at least such a part of all is not longer than.
func quantile(durations []time.Duration, part float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	rank := int(part*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}
