// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// Client calls the API of a simulation in another process.
type Client struct {
	access access
}

// Open finds the simulation that runs with a state directory.
func Open(dir string) (*Client, error) {
	data, err := os.ReadFile(accessFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no simulation runs with the directory %s", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("find the simulation: %w", err)
	}
	c := &Client{}
	if err := json.Unmarshal(data, &c.access); err != nil {
		return nil, fmt.Errorf("find the simulation: %s: %w", accessFile(dir), err)
	}
	return c, nil
}

// Nodes lists the nodes.
func (c *Client) Nodes(ctx context.Context) (nodes []Node, err error) {
	return nodes, c.call(ctx, http.MethodGet, "/nodes", nil, &nodes)
}

// Power switches a node on or off.
func (c *Client) Power(ctx context.Context, cluster, node string, on bool) error {
	state := "off"
	if on {
		state = "on"
	}
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/nodes/%s/%s/power/%s", cluster, node, state), nil, nil)
}

// Secrets says with which key each Secret of a cluster was encrypted when it was last written, by namespace/name.
func (c *Client) Secrets(ctx context.Context, cluster string) (keys map[string]secrets.EncryptionKey, err error) {
	return keys, c.call(ctx, http.MethodGet, "/clusters/"+url.PathEscape(cluster)+"/secrets", nil, &keys)
}

// Faults lists the faults in force.
func (c *Client) Faults(ctx context.Context) (faults []fault.Active, err error) {
	return faults, c.call(ctx, http.MethodGet, "/faults", nil, &faults)
}

// Inject puts a fault in force and returns its ID.
func (c *Client) Inject(ctx context.Context, f fault.Fault) (string, error) {
	var active fault.Active
	err := c.call(ctx, http.MethodPost, "/faults", f, &active)
	return active.ID, err
}

// Clear ends a fault, or all when id is empty.
func (c *Client) Clear(ctx context.Context, id string) error {
	path := "/faults"
	if id != "" {
		path += "/" + url.PathEscape(id)
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// Journal calls fn with the entries that the filter selects; with follow it goes on until fn or the context ends it.
func (c *Client) Journal(ctx context.Context, f journal.Filter, follow bool, fn func(journal.Entry) error) error {
	query := url.Values{"cluster": {f.Cluster}, "node": {f.Node}, "method": {f.Method}, "after": {strconv.FormatUint(f.After, 10)}}
	if follow {
		query.Set("follow", "true")
	}
	resp, err := c.do(ctx, http.MethodGet, "/journal?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // It was only read.
	decoder := json.NewDecoder(resp.Body)
	for {
		var e journal.Entry
		if err := decoder.Decode(&e); err != nil {
			return ended(ctx, err)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}

// ended tells the end of the list, or of the simulation, from a failure.
func ended(ctx context.Context, err error) error {
	over := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil
	if !over {
		return fmt.Errorf("read journal: %w", err)
	}
	return nil
}

func (c *Client) call(ctx context.Context, method, path string, body, answer any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // As above.
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("decode the simulation's answer: %w", err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.access.Address+path, &content)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.access.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call the simulation: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close() //nolint:errcheck // As above.
		message, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, errors.New(strings.TrimSpace(string(message)))
	}
	return resp, nil
}
