// SPDX-License-Identifier: Apache-2.0

package contexts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

func TestPath(t *testing.T) {
	t.Setenv("HOME", "/home/x")
	for name, row := range map[string]struct {
		env  map[string]string
		want string
	}{
		"named":    {map[string]string{"ICHOR_CONFIG": "/tmp/mine.yaml", "XDG_CONFIG_HOME": "/etc/xdg"}, "/tmp/mine.yaml"},
		"XDG":      {map[string]string{"XDG_CONFIG_HOME": "/etc/xdg"}, "/etc/xdg/ichor/config.yaml"},
		"home":     {nil, "/home/x/.config/ichor/config.yaml"},
		"relative": {map[string]string{"XDG_CONFIG_HOME": "x"}, "/home/x/.config/ichor/config.yaml"}, // The specification says to ignore it.
	} {
		t.Run(name, func(t *testing.T) {
			path, err := Path(func(name string) string { return row.env[name] })
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(path).To(Equal(row.want))
		})
	}
}

func TestLoadWithoutAFile(t *testing.T) {
	g := NewWithT(t)
	file, mended, err := Load(filepath.Join(t.TempDir(), "none"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(mended).To(BeEmpty())
	g.Expect(file).To(Equal(&File{}))
}

// A file that others can read is made private, and that is said once.
func TestWrongPermissionsAreSaidAndMended(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	g.Expect(os.WriteFile(path, []byte("current: a\ncontexts: [{name: a, hub: https://a}]\n"), 0o600)).To(Succeed())
	g.Expect(os.Chmod(path, 0o644)).To(Succeed())
	file, mended, err := Load(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.Find("a").Hub).To(Equal("https://a"))
	g.Expect(mended).To(Equal(path + " had mode 0644 and holds credentials: its mode is 0600 now"))
	info, err := os.Stat(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	_, mended, err = Load(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(mended).To(BeEmpty())
}

func TestLoadNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"contexts: [{hub: https://a}]":          "contexts[0].name is empty",
		"contexts: [{name: a}, {name: a}]":      `contexts[1].name "a" is there twice`,
		"contexts: [{name: a, insecure: true}]": `unknown field "insecure"`,
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join(t.TempDir(), "config.yaml")
			g.Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
			_, _, err := Load(path)
			g.Expect(err).To(MatchError(And(ContainSubstring(path), ContainSubstring(want))))
		})
	}
}

func TestGetSaysWhichThereAre(t *testing.T) {
	g := NewWithT(t)
	file := &File{}
	_, err := file.Get("c")
	g.Expect(err).To(MatchError(`there is no context "c", and no other; sign in with: ichor login URL`))
	file.Put(&Context{Name: "a"})
	file.Put(&Context{Name: "b"})
	_, err = file.Get("c")
	g.Expect(err).To(MatchError(`there is no context "c"; there are: a, b`))
	g.Expect(file.Get("b")).To(HaveField("Name", "b"))
}

func TestPutAndDelete(t *testing.T) {
	g := NewWithT(t)
	file := &File{Current: "a", Contexts: []*Context{{Name: "a"}, {Name: "b"}}}
	file.Put(&Context{Name: "a", Hub: "https://new"})
	g.Expect(file.Names()).To(Equal([]string{"a", "b"}))
	g.Expect(file.Find("a").Hub).To(Equal("https://new"))
	g.Expect(file.Delete("c")).To(BeFalse())
	g.Expect(file.Delete("a")).To(BeTrue())
	g.Expect(file.Current).To(BeEmpty(), "what is gone is not current")
}

// Commands that change the file at the same time lose nothing.
func TestUpdateAtTheSameTime(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "new", "config.yaml")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			err := Update(path, func(f *File) error { f.Put(&Context{Name: fmt.Sprint(i)}); return nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	file, mended, err := Load(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(mended).To(BeEmpty())
	g.Expect(file.Contexts).To(HaveLen(20))
}

func TestUpdateThatFailsChangesNothing(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	g.Expect(Update(path, func(f *File) error { f.Current = "a"; return nil })).To(Succeed())
	broken := errors.New("no")
	g.Expect(Update(path, func(f *File) error { f.Current = "b"; return broken })).To(MatchError(broken))
	file, _, err := Load(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.Current).To(Equal("a"))
}

func TestUpdateFollowsASymbolicLink(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real.yaml"), filepath.Join(dir, "link.yaml")
	g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	g.Expect(os.Symlink(file, link)).To(Succeed())
	g.Expect(Update(link, func(f *File) error { f.Current = "a"; return nil })).To(Succeed())
	data, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(data)).To(Equal("current: a\n"))
}
