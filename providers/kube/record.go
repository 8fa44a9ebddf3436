// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/providers/guard"
)

// The record is a ConfigMap of this name on the target.
const (
	// RecordNamespace is where the record is kept.
	RecordNamespace = metav1.NamespaceSystem

	// RecordName is the name of the record.
	RecordName = "ichor-hub"
)

// Keys of the record's ConfigMap.
const (
	recordOwnerKey     = "ownerID"
	recordOperationKey = "operationID"
	recordStageKey     = "stage"
	recordSequenceKey  = "sequence"
)

// Record is what a hub writes down on a target: whose target it is, and what was begun there last. It outlives the management cluster,
// so that neither a second hub nor one that was restored from a backup takes what has been done for something to do.
type Record struct {
	// OwnerID is the identity under which a hub manages the target; empty if there is no record.
	OwnerID string

	// OperationID and Stage are the disruptive stage that was begun last, and Sequence its place among all.
	OperationID string
	Stage       string
	Sequence    int64

	// Version is the resourceVersion that was read; a write goes through only if the record is still that.
	Version string
}

// Same says whether two records say the same.
func (r Record) Same(other Record) bool {
	r.Version, other.Version = "", ""
	return r == other
}

func (c *connection) Record(ctx context.Context) (Record, error) {
	found, err := c.clients.CoreV1().ConfigMaps(RecordNamespace).Get(ctx, RecordName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Record{}, nil
	case err != nil:
		return Record{}, fmt.Errorf("reading ConfigMap %s/%s: %w", RecordNamespace, RecordName, err)
	}
	return recordFrom(found)
}

func recordFrom(object *corev1.ConfigMap) (Record, error) {
	record := Record{
		OwnerID: object.Data[recordOwnerKey], OperationID: object.Data[recordOperationKey], Stage: object.Data[recordStageKey],
		Version: object.ResourceVersion,
	}
	if text := object.Data[recordSequenceKey]; text != "" {
		sequence, err := strconv.ParseInt(text, 10, 64)
		if err != nil || sequence < 0 {
			return Record{}, fmt.Errorf("ConfigMap %s/%s: %s is %q, and not a whole number from 0", RecordNamespace, RecordName, recordSequenceKey, text)
		}
		record.Sequence = sequence
	}
	return record, nil
}

func (c *connection) WriteRecord(ctx context.Context, record Record) error {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: RecordNamespace, Name: RecordName, ResourceVersion: record.Version},
		Data: map[string]string{
			recordOwnerKey: record.OwnerID, recordOperationKey: record.OperationID, recordStageKey: record.Stage,
			recordSequenceKey: strconv.FormatInt(record.Sequence, 10),
		},
	}
	ctx = guard.With(ctx, c.guard)
	var err error
	if record.Version == "" {
		_, err = c.clients.CoreV1().ConfigMaps(RecordNamespace).Create(ctx, object, metav1.CreateOptions{})
	} else {
		_, err = c.clients.CoreV1().ConfigMaps(RecordNamespace).Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", RecordNamespace, RecordName, err)
	}
	return nil
}
