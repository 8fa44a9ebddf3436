// SPDX-License-Identifier: Apache-2.0

// Package control is the simulator's own API: HTTP and JSON on a loopback address, for the command line and for tests in other
// processes. Who may read the state directory may use it: the address and a token are in a file there.
package control

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// Simulation is what the API controls.
type Simulation interface {
	// Journal is the journal to read.
	Journal() *journal.Journal
	// Inject puts a fault in force.
	Inject(f fault.Fault) (string, error)
	// Clear ends a fault, or all.
	Clear(id string) bool
	// Faults lists the faults in force.
	Faults() []fault.Active
	// Power switches a node on or off.
	Power(cluster, node string, on bool) error
	// NodeStates describes every node.
	NodeStates() []Node
	// Secrets says with which key each Secret of a cluster was encrypted when it was last written, by namespace/name.
	Secrets(cluster string) (map[string]secrets.EncryptionKey, error)
}

// Node is one row of the list of nodes.
type Node struct {
	Cluster        string `json:"cluster"`
	Name           string `json:"name"`
	Address        string `json:"address"`
	ControlPlane   bool   `json:"controlPlane"`
	Leader         bool   `json:"leader,omitempty"`
	Stage          string `json:"stage"`
	Ready          bool   `json:"ready"`
	Version        string `json:"version"`
	Schematic      string `json:"schematic"`
	Next           string `json:"next"`
	UpgradePending bool   `json:"upgradePending,omitempty"`
	BootID         string `json:"bootID"`
	// Fingerprint is that of the certificate which a machine in maintenance mode serves.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// access is the content of the file that clients find the API by.
type access struct {
	Address string `json:"address"`
	Token   string `json:"token"`
}

func accessFile(dir string) string { return filepath.Join(dir, "control.json") }

// Server serves the API.
type Server struct {
	sim   Simulation
	token string
	http  *http.Server
	file  string
}

// Serve starts the API of a simulation and writes the way to it into the directory.
func Serve(dir string, sim Simulation) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("control API: %w", err)
	}
	s := &Server{sim: sim, token: rand.Text(), file: accessFile(dir)}
	s.http = &http.Server{Handler: s.authorized(s.routes()), ReadHeaderTimeout: 10 * time.Second}
	data, err := json.Marshal(access{Address: listener.Addr().String(), Token: s.token})
	if err == nil {
		err = os.WriteFile(s.file, data, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("control API: %w", err), listener.Close())
	}
	go func() { _ = s.http.Serve(listener) }()
	return s, nil
}

// Close ends the API and removes the way to it.
func (s *Server) Close() {
	_ = s.http.Close()
	_ = os.Remove(s.file)
}

func (s *Server) authorized(next http.Handler) http.Handler {
	want := []byte("Bearer " + s.token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "the token in control.json is required", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /nodes", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.sim.NodeStates()) })
	mux.HandleFunc("POST /nodes/{cluster}/{node}/power/{state}", s.power)
	mux.HandleFunc("GET /clusters/{cluster}/secrets", s.secrets)
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.sim.Faults()) })
	mux.HandleFunc("POST /faults", s.inject)
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) { s.clear(w, "") })
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) { s.clear(w, r.PathValue("id")) })
	mux.HandleFunc("GET /journal", s.journal)
	return mux
}

func reply(w http.ResponseWriter, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, "encode answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The only failure left is a client that went away.
	_, _ = w.Write(append(data, '\n'))
}

func (s *Server) power(w http.ResponseWriter, r *http.Request) {
	state := r.PathValue("state")
	if state != "on" && state != "off" {
		http.Error(w, "the power is either on or off", http.StatusBadRequest)
		return
	}
	if err := s.sim.Power(r.PathValue("cluster"), r.PathValue("node"), state == "on"); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
	}
}

func (s *Server) secrets(w http.ResponseWriter, r *http.Request) {
	keys, err := s.sim.Secrets(r.PathValue("cluster"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	reply(w, keys)
}

func (s *Server) inject(w http.ResponseWriter, r *http.Request) {
	var f fault.Fault
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		http.Error(w, "fault: "+err.Error(), http.StatusBadRequest)
		return
	}
	id, err := s.sim.Inject(f)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	reply(w, fault.Active{ID: id, Fault: f})
}

func (s *Server) clear(w http.ResponseWriter, id string) {
	if s.sim.Clear(id) || id == "" {
		return
	}
	http.Error(w, "no fault "+id+" is in force", http.StatusNotFound)
}

// journal answers with one entry a line. With follow it goes on until the client has enough.
func (s *Server) journal(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	after, _ := strconv.ParseUint(query.Get("after"), 10, 64)
	filter := journal.Filter{
		Cluster: query.Get("cluster"), Node: query.Get("node"), Method: query.Get("method"), After: after,
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	encoder := json.NewEncoder(w)
	if query.Get("follow") == "" {
		for _, e := range s.sim.Journal().Entries(filter) {
			if err := encoder.Encode(e); err != nil {
				return // The client went away.
			}
		}
		return
	}
	flush := http.NewResponseController(w)
	_ = s.sim.Journal().Follow(r.Context(), filter, func(e journal.Entry) error {
		return errors.Join(encoder.Encode(e), flush.Flush())
	})
}
