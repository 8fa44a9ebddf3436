// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ichor.maesh.dev/hub/controllers/versions"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

const (
	defaultPageSize = 100
	maximumPageSize = 1000
)

// referred is a message of something that has a name.
type referred interface {
	proto.Message
	GetRef() *pb.Reference
}

// fields are what lists of a message can be sorted by. A field is a string that sorts as what it stands for.
type fields[M any] map[string]func(M) string

var operationFields = fields[*pb.Operation]{
	"create_time":     func(op *pb.Operation) string { return timeKey(op.GetCreateTime()) },
	"start_time":      func(op *pb.Operation) string { return timeKey(op.GetStartTime()) },
	"completion_time": func(op *pb.Operation) string { return timeKey(op.GetCompletionTime()) },
	"name":            func(op *pb.Operation) string { return op.GetRef().GetName() },
	"cluster":         func(op *pb.Operation) string { return clusterKey(op.GetCluster()) },
	"kind":            func(op *pb.Operation) string { return enumKey(op.GetKind()) },
	"phase":           func(op *pb.Operation) string { return enumKey(op.GetPhase()) },
	"attention":       func(op *pb.Operation) string { return enumKey(op.GetAttention()) },
}

var clusterFields = fields[*pb.Cluster]{
	"name":               func(c *pb.Cluster) string { return c.GetRef().GetName() },
	"create_time":        func(c *pb.Cluster) string { return timeKey(c.GetCreateTime()) },
	"attention":          func(c *pb.Cluster) string { return enumKey(c.GetAttention()) },
	"talos_version":      func(c *pb.Cluster) string { return versionKey(c.GetTalosVersions().GetLowest()) },
	"kubernetes_version": func(c *pb.Cluster) string { return versionKey(c.GetKubernetesVersions().GetLowest()) },
}

var machineFields = fields[*pb.Machine]{
	"name":      func(m *pb.Machine) string { return m.GetRef().GetName() },
	"cluster":   func(m *pb.Machine) string { return clusterKey(m.GetCluster()) + "\x00" + enumKey(m.GetRole()) },
	"role":      func(m *pb.Machine) string { return enumKey(m.GetRole()) },
	"attention": func(m *pb.Machine) string { return enumKey(m.GetAttention()) },
}

func clusterKey(ref *pb.Reference) string { return ref.GetName() + "\x00" + ref.GetNamespace() }

func enumKey[E ~int32](value E) string { return fmt.Sprintf("%04d", value) }

// timeKey sorts times; what is not set comes first.
func timeKey(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	key := binary.BigEndian.AppendUint64(make([]byte, 0, 12), uint64(t.GetSeconds())^(1<<63))
	return string(binary.BigEndian.AppendUint32(key, uint32(t.GetNanos())))
}

// versionKey sorts versions; what is none comes first.
func versionKey(text string) string {
	version, err := versions.Parse(text)
	if err != nil {
		return "\x00" + text
	}
	key := fmt.Sprintf("%010d.%010d.%010d", version.Major, version.Minor, version.Patch)
	for _, pre := range version.Pre {
		if pre.IsNum {
			key += fmt.Sprintf("-0%010d", pre.VersionNum)
		} else {
			key += "-1" + pre.VersionStr
		}
	}
	if len(version.Pre) == 0 {
		key += "~" // A final version comes after all that lead to it.
	}
	return key
}

// order is how a list is sorted: by a field, then by name and namespace, so that every item has one place.
type order[M referred] struct {
	field      func(M) string
	descending bool
}

// orderOf reads an order, such as "create_time desc".
func orderOf[M referred](text, otherwise string, known fields[M]) (order[M], error) {
	name, direction, _ := strings.Cut(strings.TrimSpace(cmp.Or(strings.TrimSpace(text), otherwise)), " ")
	direction = strings.ToLower(strings.TrimSpace(direction))
	field := known[name]
	if field == nil || !slices.Contains([]string{"", "asc", "desc"}, direction) {
		return order[M]{}, invalidField("order_by", text, fmt.Sprintf("one of %s, with asc or desc after it", strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
	}
	return order[M]{field: field, descending: direction == "desc"}, nil
}

// place is where an item is in a list. It stays a place when the item is gone.
type place struct {
	Key       []byte `json:"k,omitempty"`
	Namespace string `json:"s"`
	Name      string `json:"n"`

	// Query is what was listed and how: a place in another list is none.
	Query string `json:"q"`
}

type placed[M referred] struct {
	key  string
	item M
}

func (o order[M]) compare(a, b placed[M]) int {
	byField := strings.Compare(a.key, b.key)
	if o.descending {
		byField = -byField
	}
	refA, refB := a.item.GetRef(), b.item.GetRef()
	return cmp.Or(byField, strings.Compare(refA.GetName(), refB.GetName()), strings.Compare(refA.GetNamespace(), refB.GetNamespace()))
}

// after says whether an item comes after a place.
func (o order[M]) after(p *place, item placed[M]) bool {
	byField := strings.Compare(item.key, string(p.Key))
	if o.descending {
		byField = -byField
	}
	ref := item.item.GetRef()
	return cmp.Or(byField, strings.Compare(ref.GetName(), p.Name), strings.Compare(ref.GetNamespace(), p.Namespace)) > 0
}

// paging is which part of a list is asked for.
type paging struct {
	size  int
	query string
	from  *place
}

// pagingOf reads which part of a list is asked for. The query is all that makes the list: what it is filtered and sorted by.
func pagingOf(page *pb.Page, query ...proto.Message) (paging, error) {
	p := paging{size: int(page.GetSize()), query: fingerprint(query)}
	switch {
	case p.size < 0, p.size > maximumPageSize:
		return p, invalidField("page.size", strconv.Itoa(p.size), fmt.Sprintf("a number from 1 to %d; 0 means %d", maximumPageSize, defaultPageSize))
	case p.size == 0:
		p.size = defaultPageSize
	}
	if page.GetToken() == "" {
		return p, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(page.GetToken())
	if err != nil || json.Unmarshal(data, &p.from) != nil || p.from == nil {
		return p, invalidField("page.token", page.GetToken(), "next_page_token of an answer, or empty for the beginning")
	}
	if p.from.Query != p.query {
		return p, invalidField("page.token", page.GetToken(), "next_page_token of an answer to the same filter and order_by")
	}
	return p, nil
}

// fingerprint tells one query from another.
func fingerprint(query []proto.Message) string {
	hash := fnv.New64a()
	for _, part := range query {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(part)
		if err != nil {
			continue // Such a message could not have been read.
		}
		_, _ = hash.Write(append(data, 0xff)) // It never fails.
	}
	return strconv.FormatUint(hash.Sum64(), 36)
}

// cut sorts a list and cuts the part out of it that is asked for. next is where to go on, empty at the end.
func cut[M referred](items []M, by order[M], p paging) (part []M, next string) {
	list := make([]placed[M], 0, len(items))
	for _, item := range items {
		one := placed[M]{key: by.field(item), item: item}
		if p.from == nil || by.after(p.from, one) {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, by.compare)
	for i := range min(len(list), p.size) {
		part = append(part, list[i].item)
	}
	if len(list) > p.size {
		next = token(list[p.size-1], p.query)
	}
	return part, next
}

func token[M referred](last placed[M], query string) string {
	ref := last.item.GetRef()
	data, err := json.Marshal(place{Key: []byte(last.key), Namespace: ref.GetNamespace(), Name: ref.GetName(), Query: query})
	if err != nil {
		return "" // Bytes and names always marshal.
	}
	return base64.RawURLEncoding.EncodeToString(data)
}
