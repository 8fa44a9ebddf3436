// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// document is a bill of materials in SPDX 2.3, as far as it is used here.
type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creation       `json:"creationInfo"`
	Packages          []pkg          `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	Name             string      `json:"name"`
	SPDXID           string      `json:"SPDXID"`
	VersionInfo      string      `json:"versionInfo,omitempty"`
	DownloadLocation string      `json:"downloadLocation"`
	FilesAnalyzed    bool        `json:"filesAnalyzed"`
	LicenseConcluded string      `json:"licenseConcluded"`
	LicenseDeclared  string      `json:"licenseDeclared"`
	CopyrightText    string      `json:"copyrightText"`
	Checksums        []checksum  `json:"checksums,omitempty"`
	ExternalRefs     []reference `json:"externalRefs,omitempty"`
	Purpose          string      `json:"primaryPackagePurpose,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// component is a part of the binary.
type component struct {
	name, version, purl, license string
	checksum                     *checksum
}

const (
	noAssertion = "NOASSERTION"
	documentID  = "SPDXRef-DOCUMENT"
	hubID       = "SPDXRef-ichor-hub"
)

// bill is the bill of materials of a binary: its modules as the linker has noted them, Go's standard library, and the packages of the page.
func bill(info *buildinfo.BuildInfo, page []component, version, platform string, content []byte, created time.Time) ([]byte, error) {
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	d := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: "ichor-hub " + version + " " + platform,
		DocumentNamespace: "https://ichor.maesh.dev/spdx/ichor-hub/" + version + "/" + platform + "/" + hash,
		CreationInfo:      creation{Created: created.Format("2006-01-02T15:04:05Z"), Creators: []string{"Organization: Ichor hub", "Tool: ichor-hub-image"}},
		Packages: []pkg{{
			Name: "ichor-hub", SPDXID: hubID, VersionInfo: version, DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: "Apache-2.0",
			CopyrightText: noAssertion, Purpose: "APPLICATION", Checksums: []checksum{{"SHA256", hash}},
			ExternalRefs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + info.Main.Path + "@" + version + "#" + strings.TrimPrefix(info.Path, info.Main.Path+"/")}},
		}},
		Relationships: []relationship{{documentID, "DESCRIBES", hubID}},
	}
	for _, part := range slices.Concat(goComponents(info), page) {
		id := idOf(part)
		p := pkg{
			Name: part.name, SPDXID: id, VersionInfo: part.version, DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: noAssertion,
			CopyrightText: noAssertion, Purpose: "LIBRARY", ExternalRefs: []reference{{"PACKAGE-MANAGER", "purl", part.purl}},
		}
		if part.license != "" {
			p.LicenseDeclared = part.license
		}
		if part.checksum != nil {
			p.Checksums = []checksum{*part.checksum}
		}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{hubID, "CONTAINS", id})
	}
	return json.MarshalIndent(d, "", "  ")
}

// goComponents are the modules that are linked, those that replace others in their place, and the standard library.
func goComponents(info *buildinfo.BuildInfo) []component {
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	goVersion, _, _ = strings.Cut(goVersion, " ")
	list := []component{{name: "stdlib", version: goVersion, purl: "pkg:golang/stdlib@" + goVersion, license: "BSD-3-Clause"}}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		list = append(list, component{
			name: module.Path, version: module.Version, purl: "pkg:golang/" + strings.ToLower(module.Path) + "@" + module.Version, checksum: sumOf(module),
		})
	}
	return list
}

// sumOf is the hash of a module as go.sum has it: of the list of the hashes of its files.
func sumOf(module *debug.Module) *checksum {
	encoded, ok := strings.CutPrefix(module.Sum, "h1:")
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return nil
	}
	return &checksum{"SHA256", hex.EncodeToString(sum)}
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func idOf(part component) string {
	return "SPDXRef-" + notInID.ReplaceAllString(strings.TrimPrefix(part.purl, "pkg:"), "-")
}

// npmPackages are the packages that the page is made of: not those that only build or test it. Without a file there are none.
func npmPackages(lock string) ([]component, error) {
	if lock == "" {
		return nil, nil
	}
	content, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	var read struct {
		Packages map[string]struct {
			Version, Integrity, License string
			Dev, DevOptional, Optional  bool
		}
	}
	if err := json.Unmarshal(content, &read); err != nil {
		return nil, fmt.Errorf("reading %s: %w", lock, err)
	}
	var list []component
	for path, found := range read.Packages {
		at := strings.LastIndex(path, "node_modules/")
		if at < 0 || found.Dev || found.DevOptional || found.Optional {
			continue
		}
		name := path[at+len("node_modules/"):]
		part := component{name: name, version: found.Version, purl: "pkg:npm/" + strings.ReplaceAll(name, "@", "%40") + "@" + found.Version, license: found.License}
		if encoded, ok := strings.CutPrefix(found.Integrity, "sha512-"); ok {
			if sum, err := base64.StdEncoding.DecodeString(encoded); err == nil {
				part.checksum = &checksum{"SHA512", hex.EncodeToString(sum)}
			}
		}
		list = append(list, part)
	}
	slices.SortFunc(list, func(a, b component) int { return strings.Compare(a.purl, b.purl) })
	return slices.CompactFunc(list, func(a, b component) bool { return a.purl == b.purl }), nil
}
