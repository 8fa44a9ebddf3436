// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/cmd/ichor/contexts"
	"ichor.maesh.dev/hub/cmd/ichor/dial"
	"ichor.maesh.dev/hub/hub/auth/signin"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Methods of contexts.Credentials.
const (
	methodToken = "token"
	methodLink  = "link"
	methodOIDC  = "oidc"
)

// loginFlags are the flags of ichor login.
type loginFlags struct {
	link, tokenFile     string
	device              bool
	caFile, fingerprint string
}

func newLoginCommand(a *app) *cobra.Command {
	var flags loginFlags
	cmd := &cobra.Command{
		Use:   "login [URL]",
		Short: "Sign in to a hub",
		Long: `Sign in to a hub, and make it the one that commands work with.

Without flags, a browser on this machine opens at the identity provider of the hub. --device signs in on another device, --link by a link
that a standalone hub has printed, and --token-file by a token of the hub's management API (- reads it from standard input; a file is
read again for each command, since others renew it).

A hub whose certificate nobody vouches for is trusted by --ca-file, or by the --fingerprint that it printed when it started. On a terminal
ichor shows the fingerprint and asks. It never goes on without.

Without a URL, the hub of the current context, or of --context, is meant. --context names the context that is written (default: the name
of the hub, or its host).`,
		Example: `  ichor login https://hub.example.com
  ichor login --link 'https://127.0.0.1:8443/auth/link?code=...' --fingerprint AB:CD:...
  ichor login https://hub.example.com --token-file /var/run/secrets/hub/token --ca-file ca.pem`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.login(cmd.Context(), flags, append(args, "")[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.link, "link", "", "one-time link of a standalone hub")
	f.BoolVar(&flags.device, "device", false, "sign in on another device")
	f.StringVar(&flags.tokenFile, "token-file", "", "file with a token of the management API, or - for standard input")
	f.StringVar(&flags.caFile, "ca-file", "", "file with the certificates that vouch for the hub")
	f.StringVar(&flags.fingerprint, "fingerprint", "", "SHA-256 of the hub's own certificate, to trust that alone")
	cmd.MarkFlagsMutuallyExclusive("link", "device", "token-file")
	cmd.MarkFlagsMutuallyExclusive("ca-file", "fingerprint")
	return cmd
}

func (a *app) login(ctx context.Context, flags loginFlags, text string) error {
	made, err := a.contextToSignIn(flags, text)
	if err != nil {
		return err
	}
	hub, err := a.meet(ctx, made)
	if err != nil {
		return err
	}
	if made.Name == "" {
		made.Name, err = a.freeName(hub.GetName(), hostOf(made.Hub))
		if err != nil {
			return err
		}
	}
	if made.Credentials, err = a.signIn(ctx, made, hub, flags); err != nil {
		return fmt.Errorf("signing in to %s: %w", made.Hub, err)
	}
	session, err := a.session(ctx, made)
	if err != nil {
		return fmt.Errorf("signing in to %s: %w", made.Hub, err)
	}
	made.Credentials.User = session.GetUser()
	err = a.update(func(file *contexts.File) error {
		file.Put(made)
		file.Current = made.Name
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Signed in to %s as %s. Context %s is the current one.\n", made.Hub, session.GetUser(), made.Name)
	return nil
}

// contextToSignIn is the context that is written if all goes well: one that there is, or another.
func (a *app) contextToSignIn(flags loginFlags, text string) (*contexts.Context, error) {
	file, err := a.contexts()
	if err != nil {
		return nil, err
	}
	address, err := a.address(file, flags, text)
	if err != nil {
		return nil, err
	}
	made := &contexts.Context{Name: a.context, Hub: address.String()}
	if other := file.Find(a.context); other != nil && other.Hub != made.Hub {
		return nil, usageError("context %s is about %s: choose another name with --context, or delete it with: ichor context delete %[1]s", a.context, cmp.Or(other.Hub, other.Kubeconfig))
	}
	for _, known := range file.Contexts {
		if known.Hub == made.Hub && (a.context == "" || known.Name == a.context) {
			again := *known
			made = &again
			made.Credentials = nil
			break
		}
	}
	return made, a.trust(made, flags)
}

// plainName is a name that needs no quotes anywhere. What a hub calls itself is its own choice.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:\[\]_-]*$`)

// freeName is the first of the names that no context has.
func (a *app) freeName(names ...string) (string, error) {
	file, err := a.contexts()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if plainName.MatchString(name) && file.Find(name) == nil {
			return name, nil
		}
	}
	return "", usageError("there are contexts of other hubs with the names %s: choose one with --context", strings.Join(names, ", "))
}

// address is the hub to sign in to.
func (a *app) address(file *contexts.File, flags loginFlags, text string) (*url.URL, error) {
	switch {
	case flags.link != "" && text != "":
		return nil, usageError("the URL is in --link already")
	case flags.link != "":
		link, err := url.Parse(flags.link)
		if err != nil || link.Host == "" {
			return nil, usageError("--link is no link such as https://127.0.0.1:8443/auth/link?code=...")
		}
		text = link.Scheme + "://" + link.Host
	case text == "":
		name := cmp.Or(a.context, a.Getenv("ICHOR_CONTEXT"), file.Current)
		if name == "" {
			return nil, usageError("which hub? ichor login URL")
		}
		known, err := file.Get(name)
		if err != nil {
			return nil, usageError("%w", err)
		}
		text = known.Hub
	}
	parsed, err := dial.ParseURL(text)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return parsed, nil
}

// trust puts what the flags say about the hub's certificate into its context.
func (a *app) trust(made *contexts.Context, flags loginFlags) error {
	switch {
	case flags.caFile != "":
		data, err := os.ReadFile(flags.caFile)
		if err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
		made.CertificateAuthority, made.Fingerprint = string(data), ""
	case flags.fingerprint != "":
		fingerprint, err := dial.ParseFingerprint(flags.fingerprint)
		if err != nil {
			return usageError("--fingerprint: %w", err)
		}
		made.CertificateAuthority, made.Fingerprint = "", fingerprint
	}
	return nil
}

// meet asks the hub which it is. Where nobody vouches for it, a person has to.
func (a *app) meet(ctx context.Context, made *contexts.Context) (*pb.GetHubResponse, error) {
	hub, err := a.getHub(ctx, made)
	var mismatch *dial.FingerprintError
	if !dial.Untrusted(err) && !errors.As(err, &mismatch) {
		return hub, err
	}
	if a.InTerminal && mismatch == nil {
		if err := a.acceptFingerprint(ctx, made); err != nil {
			return nil, err
		}
		return a.getHub(ctx, made)
	}
	if mismatch != nil {
		return nil, fmt.Errorf("%w; nothing was sent to it. If the hub has a new certificate, sign in again with the --fingerprint that it printed", mismatch)
	}
	return nil, fmt.Errorf("nobody vouches for the certificate of %s (%w): add --ca-file, or the --fingerprint that the hub printed when it started", made.Hub, rootCause(err))
}

// rootCause is the innermost reason.
func rootCause(err error) error {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// acceptFingerprint shows the hub's certificate and asks whether it is the right one.
func (a *app) acceptFingerprint(ctx context.Context, made *contexts.Context) error {
	address, err := dial.ParseURL(made.Hub)
	if err != nil {
		return err
	}
	looking, cancel := a.deadline(ctx)
	defer cancel()
	certificate, err := dial.Certificate(looking, address)
	if err != nil {
		return err
	}
	a.remark("Nobody vouches for the certificate of %s.\nIts SHA-256 fingerprint is %s\nThe hub prints its own when it starts: compare them.", made.Hub, dial.Fingerprint(certificate))
	answer, err := a.answer(ctx, "Are they the same? (yes/no) ")
	if err != nil {
		return err
	}
	if !strings.EqualFold(answer, "yes") {
		return errors.New("not confirmed: nothing was sent to it")
	}
	made.CertificateAuthority, made.Fingerprint = "", dial.Fingerprint(certificate)
	return nil
}

func (a *app) getHub(ctx context.Context, made *contexts.Context) (*pb.GetHubResponse, error) {
	var err error
	if a.connection, err = a.toHub(made, nil); err != nil {
		return nil, err
	}
	defer a.disconnect()
	asking, cancel := a.deadline(ctx)
	defer cancel()
	response, err := a.connection.hub.GetHub(asking, connect.NewRequest(&pb.GetHubRequest{}))
	if err != nil && !dial.Untrusted(err) {
		var mismatch *dial.FingerprintError
		if errors.As(err, &mismatch) {
			return nil, mismatch
		}
		return nil, a.explain(err)
	}
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

// signIn gets credentials in the way that the flags and the hub leave.
func (a *app) signIn(ctx context.Context, made *contexts.Context, hub *pb.GetHubResponse, flags loginFlags) (*contexts.Credentials, error) {
	oidc := hub.GetSignIn().GetOidc()
	switch {
	case flags.tokenFile != "":
		return a.byToken(flags.tokenFile)
	case flags.link != "":
		return a.byLink(ctx, made, flags.link)
	case oidc != nil:
		return a.byProvider(ctx, made, oidc, flags.device)
	case flags.device:
		return nil, errors.New("the hub has no identity provider, so there is no --device")
	case hub.GetSignIn().GetLink():
		return nil, errors.New("the hub has no identity provider: print a link with ichor-hub login-link where it runs, and use it with --link")
	}
	return nil, errors.New("the hub has no identity provider: use a token of its management API with --token-file")
}

func (a *app) byToken(file string) (*contexts.Credentials, error) {
	if file == "-" {
		data, err := io.ReadAll(io.LimitReader(a.In, 1<<20))
		if err != nil {
			return nil, fmt.Errorf("reading the token from standard input: %w", err)
		}
		token := strings.TrimSpace(string(data))
		if token == "" {
			return nil, errors.New("there is no token on standard input")
		}
		return &contexts.Credentials{Method: methodToken, Token: token}, nil
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	if _, err := tokenOf(path); err != nil {
		return nil, err
	}
	return &contexts.Credentials{Method: methodToken, TokenFile: path}, nil
}

func (a *app) byLink(ctx context.Context, made *contexts.Context, link string) (*contexts.Credentials, error) {
	client, err := dial.Client(dial.Trust{CertificateAuthority: made.CertificateAuthority, Fingerprint: made.Fingerprint}, nil, a.userAgent())
	if err != nil {
		return nil, err
	}
	asking, cancel := a.deadline(ctx)
	defer cancel()
	token, err := signin.Link(asking, client, link)
	if err != nil {
		return nil, err
	}
	got := &contexts.Credentials{Method: methodLink}
	keep(got, token)
	return got, nil
}

func (a *app) byProvider(ctx context.Context, made *contexts.Context, oidc *pb.SignIn_Oidc, device bool) (*contexts.Credentials, error) {
	provider := signin.Provider{
		Issuer: oidc.GetIssuer(), ClientID: oidc.GetClientId(), Scopes: oidc.GetScopes(),
		HTTPClient: dial.ProviderClient(dial.Trust{CertificateAuthority: made.CertificateAuthority}),
	}
	waiting, cancel := a.patience(ctx)
	defer cancel()
	var token signin.Token
	var err error
	if device {
		token, err = provider.Device(waiting, func(url, code string) {
			a.remark("Open %s on any device and enter the code %s", url, code)
		})
	} else {
		token, err = provider.Loopback(waiting, a.openBrowser)
	}
	if err != nil {
		return nil, err
	}
	got := &contexts.Credentials{Method: methodOIDC, Issuer: provider.Issuer, ClientID: provider.ClientID, Scopes: provider.Scopes}
	keep(got, token)
	return got, nil
}

// openBrowser opens the page of an identity provider, and nothing else: which page that is, the other side says.
func (a *app) openBrowser(page string) error {
	parsed, err := url.Parse(page)
	if err != nil || !dial.Protected(parsed) || parsed.User != nil {
		return fmt.Errorf("the page of the identity provider, %q, is not one that begins with https://", page)
	}
	a.remark("Opening a browser at:\n  %s\nWithout one on this machine: ichor login --device", page)
	if err := a.Browse(page); err != nil {
		a.remark("No browser could be started (%v): open the address yourself.", err)
	}
	return nil
}

// session asks the hub who a context's user is.
func (a *app) session(ctx context.Context, made *contexts.Context) (*pb.GetSessionResponse, error) {
	var err error
	if a.connection, err = a.toHub(made, a.bearer(made)); err != nil {
		return nil, err
	}
	defer a.disconnect()
	return call(ctx, a, a.connection.hub.GetSession, &pb.GetSessionRequest{})
}

func hostOf(hub string) string {
	parsed, err := url.Parse(hub)
	if err != nil {
		return hub
	}
	return parsed.Host
}

// update changes the file of contexts.
func (a *app) update(change func(*contexts.File) error) error {
	path, err := contexts.Path(a.Getenv)
	if err != nil {
		return err
	}
	return contexts.Update(path, change)
}

// browse opens a page in the user's browser.
func browse(page string) error {
	name, args := "xdg-open", []string{page}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	return exec.Command(name, args...).Start()
}

func newLogoutCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the credentials of a context",
		Long: `Forget the credentials of the current context, or of the one that --context names.

The context stays, so that ichor login without a URL signs in again. Tokens that were handed out before stay good until they end.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var name string
			err := a.update(func(file *contexts.File) error {
				name = cmp.Or(a.context, a.Getenv("ICHOR_CONTEXT"), file.Current)
				if name == "" {
					return usageError("there is no current context; name one with --context")
				}
				found, err := file.Get(name)
				if err != nil {
					return usageError("%w", err)
				}
				found.Credentials = nil
				return nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "Signed out of context %s.\n", name)
			return nil
		},
	}
}

func newWhoamiCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Say who you are to the hub, and what you may do",
		Args:  cobra.NoArgs,
		RunE: a.connected(func(cmd *cobra.Command, _ []string) error {
			session, err := call(cmd.Context(), a, a.connection.hub.GetSession, &pb.GetSessionRequest{})
			if err != nil {
				return err
			}
			if !a.forPeople() {
				return a.printItem(item{session, session.GetUser()})
			}
			return a.describeSession(session)
		}),
	}
}

func (a *app) describeSession(session *pb.GetSessionResponse) error {
	err := a.printLines([][2]string{
		{"User", session.GetUser()}, {"Groups", strings.Join(session.GetGroups(), ", ")}, {"Where", a.connection.where},
		{"Signed in by", session.GetMethod()}, {"Until", a.clock(session.GetExpireTime())},
	})
	if err != nil || len(session.GetRights()) == 0 {
		return err
	}
	t := table{columns: columns("NAMESPACE", "READ", "OPERATE", "START", "OVERRIDE", "MACHINES", "CLUSTERS")}
	for _, r := range session.GetRights() {
		t.rows = append(t.rows, []string{
			cmp.Or(r.GetNamespace(), "(all)"), yesNo(r.GetRead()), yesNo(r.GetOperate()), strings.Join(r.GetStart(), ","), yesNo(r.GetOverride()),
			yesNo(r.GetMachines()), yesNo(r.GetClusters()),
		})
	}
	fmt.Fprintln(a.Out)
	return a.printTable(t)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
