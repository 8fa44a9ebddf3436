// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
)

// bootIDPath is where Linux keeps the boot ID. Reading it works on every supported Talos; the resource came with 1.14.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// schematicExtension is the name under which a machine before Talos 1.14 lists its schematic among the extensions.
const schematicExtension = "schematic"

// connection implements Reader and Writer over one connection to the endpoints of a target.
type connection struct {
	client *client.Client
	guard  guard.Func
}

// guarded returns ctx with the guard and the machine that the call is for.
func (c *connection) guarded(ctx context.Context, address string) context.Context {
	return guard.With(client.WithNode(ctx, address), c.guard)
}

// at directs calls to a machine; no address means the endpoint that answers.
func at(ctx context.Context, address string) context.Context {
	if address == "" {
		return ctx
	}
	return client.WithNode(ctx, address)
}

func (c *connection) Machine(ctx context.Context, address string) (Machine, error) {
	ctx = at(ctx, address)
	m := Machine{}
	for _, read := range []func(context.Context, *Machine) error{
		c.readVersion, c.readBootID, c.readIdentity, c.readStatus, c.readFlavour, c.readUpgradeKey,
	} {
		if err := read(ctx, &m); err != nil {
			return Machine{}, fmt.Errorf("machine at %s: %w", address, err)
		}
	}
	return m, nil
}

func (c *connection) readVersion(ctx context.Context, m *Machine) error {
	reply, err := c.client.Version(ctx)
	if err != nil {
		return fmt.Errorf("reading the version: %w", err)
	}
	for _, message := range reply.GetMessages() {
		m.Version = message.GetVersion().GetTag()
	}
	if m.Version == "" {
		return errors.New("reading the version: the answer is empty")
	}
	return nil
}

func (c *connection) readBootID(ctx context.Context, m *Machine) error {
	file, err := c.client.Read(ctx, bootIDPath)
	if err != nil {
		return fmt.Errorf("reading the boot ID: %w", err)
	}
	defer file.Close() //nolint:errcheck // Only read from.
	data, err := io.ReadAll(io.LimitReader(file, 64))
	if err != nil {
		return fmt.Errorf("reading the boot ID: %w", err)
	}
	if m.BootID = strings.TrimSpace(string(data)); m.BootID == "" {
		return errors.New("reading the boot ID: the answer is empty")
	}
	return nil
}

func (c *connection) readIdentity(ctx context.Context, m *Machine) error {
	system, err := get[*hardware.SystemInformation](ctx, c, hardware.NamespaceName, hardware.SystemInformationType, hardware.SystemInformationID)
	if err != nil {
		return err
	}
	if system != nil {
		m.UUID = system.TypedSpec().UUID
	}
	node, err := get[*k8s.Nodename](ctx, c, k8s.NamespaceName, k8s.NodenameType, k8s.NodenameID)
	if err != nil {
		return err
	}
	if node != nil {
		m.NodeName = node.TypedSpec().Nodename
	}
	return nil
}

func (c *connection) readStatus(ctx context.Context, m *Machine) error {
	status, err := get[*runtime.MachineStatus](ctx, c, runtime.NamespaceName, runtime.MachineStatusType, runtime.MachineStatusID)
	if err != nil || status == nil {
		return err
	}
	m.Stage = status.TypedSpec().Stage.String()
	m.Ready = status.TypedSpec().Status.Ready
	for _, unmet := range status.TypedSpec().Status.UnmetConditions {
		m.Unmet = append(m.Unmet, unmet.Name+": "+unmet.Reason)
	}
	return nil
}

func (c *connection) readFlavour(ctx context.Context, m *Machine) error {
	platform, err := get[*runtime.PlatformMetadata](ctx, c, runtime.NamespaceName, runtime.PlatformMetadataType, runtime.PlatformMetadataID)
	if err != nil {
		return err
	}
	if platform != nil {
		m.Platform = platform.TypedSpec().Platform
	}
	security, err := get[*runtime.SecurityState](ctx, c, runtime.NamespaceName, runtime.SecurityStateType, runtime.SecurityStateID)
	if err != nil {
		return err
	}
	if security != nil {
		m.SecureBoot = security.TypedSpec().SecureBoot
	}
	return c.readSchematic(ctx, m)
}

// readSchematic asks for the extension first: the resource that replaces it is not known to Talos before 1.14.
func (c *connection) readSchematic(ctx context.Context, m *Machine) error {
	extensions, err := safe.StateList[*runtime.ExtensionStatus](ctx, c.client.COSI, resource.NewMetadata(runtime.NamespaceName, runtime.ExtensionStatusType, "", resource.VersionUndefined))
	if err != nil {
		return fmt.Errorf("reading the extensions: %w", err)
	}
	for extension := range extensions.All() {
		if extension.TypedSpec().Metadata.Name == schematicExtension {
			m.SchematicID = extension.TypedSpec().Metadata.Version
			return nil
		}
	}
	schematic, err := get[*runtime.ImageFactorySchematic](ctx, c, runtime.NamespaceName, runtime.ImageFactorySchematicType, runtime.ImageFactorySchematicID)
	if err == nil && schematic != nil {
		m.SchematicID = schematic.TypedSpec().SchematicID
	}
	if client.StatusCode(err) == deniedCode { // An older Talos does not know the type, and then the machine has no schematic.
		return nil
	}
	return err
}

func (c *connection) readUpgradeKey(ctx context.Context, m *Machine) error {
	key, err := get[*runtime.MetaKey](ctx, c, runtime.NamespaceName, runtime.MetaKeyType, runtime.MetaKeyTagToID(meta.Upgrade))
	m.UpgradePending = key != nil
	return err
}

// get reads a resource, or nil if the machine has none.
func get[T resource.Resource](ctx context.Context, c *connection, namespace, kind, id string) (T, error) {
	got, err := safe.StateGet[T](ctx, c.client.COSI, resource.NewMetadata(namespace, kind, id, resource.VersionUndefined))
	if err != nil {
		var none T
		if state.IsNotFoundError(err) {
			return none, nil
		}
		return none, fmt.Errorf("reading resource %s %q: %w", kind, id, err)
	}
	return got, nil
}

func (c *connection) Etcd(ctx context.Context, address string) (Etcd, error) {
	ctx = client.WithNode(ctx, address)
	e := Etcd{}
	for _, read := range []func(context.Context, *Etcd) error{c.readEtcdStatus, c.readEtcdMembers, c.readEtcdAlarms} {
		if err := read(ctx, &e); err != nil {
			return Etcd{}, fmt.Errorf("etcd at %s: %w", address, err)
		}
	}
	return e, nil
}

func (c *connection) readEtcdStatus(ctx context.Context, e *Etcd) error {
	reply, err := c.client.EtcdStatus(ctx)
	if err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	for _, message := range reply.GetMessages() {
		status := message.GetMemberStatus()
		e.MemberID, e.Leader, e.RaftTerm = status.GetMemberId(), status.GetLeader(), status.GetRaftTerm()
		e.Learner, e.Errors, e.Version = status.GetIsLearner(), status.GetErrors(), status.GetProtocolVersion()
	}
	return nil
}

func (c *connection) readEtcdMembers(ctx context.Context, e *Etcd) error {
	reply, err := c.client.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
	if err != nil {
		return fmt.Errorf("reading the members: %w", err)
	}
	for _, message := range reply.GetMessages() {
		for _, member := range message.GetMembers() {
			e.Members = append(e.Members, EtcdMember{
				ID: member.GetId(), Hostname: member.GetHostname(), Learner: member.GetIsLearner(),
				Started: len(member.GetClientUrls()) > 0,
			})
		}
	}
	return nil
}

func (c *connection) readEtcdAlarms(ctx context.Context, e *Etcd) error {
	reply, err := c.client.EtcdAlarmList(ctx)
	if err != nil {
		return fmt.Errorf("reading the alarms: %w", err)
	}
	for _, message := range reply.GetMessages() {
		for _, alarm := range message.GetMemberAlarms() {
			e.Alarms = append(e.Alarms, fmt.Sprintf("%s on member %016x", alarm.GetAlarm(), alarm.GetMemberId()))
		}
	}
	return nil
}

func (c *connection) Members(ctx context.Context) ([]Member, error) {
	list, err := safe.StateListAll[*cluster.Member](ctx, c.client.COSI)
	if err != nil {
		return nil, fmt.Errorf("listing the members: %w", err)
	}
	members := make([]Member, 0, list.Len())
	for m := range list.All() {
		spec := m.TypedSpec()
		member := Member{Hostname: spec.Hostname, ControlPlane: spec.MachineType.IsControlPlane()}
		for _, address := range spec.Addresses {
			member.Addresses = append(member.Addresses, address.String())
		}
		members = append(members, member)
	}
	return members, nil
}

var systemContainerd = &common.ContainerdInstance{
	Driver:    common.ContainerDriver_CONTAINERD,
	Namespace: common.ContainerdNamespace_NS_SYSTEM,
}

func (c *connection) PullImage(ctx context.Context, address, image string) (string, error) {
	stream, err := c.client.ImageClient.Pull(c.guarded(ctx, address), &machineapi.ImageServicePullRequest{Containerd: systemContainerd, ImageRef: image})
	if err != nil {
		return "", fmt.Errorf("pulling %s at %s: %w", image, address, err)
	}
	resolved := ""
	err = drainStream(stream.Recv, func(reply *machineapi.ImageServicePullResponse) {
		if name := reply.GetName(); name != "" {
			resolved = name
		}
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("pulling %s at %s: %w", image, address, err)
	case resolved == "":
		return "", fmt.Errorf("pulling %s at %s: the machine did not say what it pulled", image, address)
	}
	return resolved, nil
}

func (c *connection) InstallImage(ctx context.Context, address, image string) (int32, error) {
	stream, err := c.client.LifecycleClient.Upgrade(c.guarded(ctx, address), &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: systemContainerd, Source: &machineapi.InstallArtifactsSource{ImageName: image},
	})
	if err != nil {
		return 0, fmt.Errorf("installing %s at %s: %w", image, address, err)
	}
	var exit *machineapi.LifecycleServiceInstallProgress_ExitCode
	err = drainStream(stream.Recv, func(reply *machineapi.LifecycleServiceUpgradeResponse) {
		if code, ok := reply.GetProgress().GetResponse().(*machineapi.LifecycleServiceInstallProgress_ExitCode); ok {
			exit = code
		}
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("installing %s at %s: %w", image, address, err)
	case exit == nil:
		return 0, fmt.Errorf("installing %s at %s: the stream ended without an exit code: %w", image, address, io.ErrUnexpectedEOF)
	}
	return exit.ExitCode, nil
}

// Upgrade asks for what keeps the data and asks nothing that may be skipped by force. To preserve also tells Talos to leave the look at
// etcd to whoever asks: the gates have looked, at more than Talos does, and no lock of Talos' stays behind that refuses the next machine.
func (c *connection) Upgrade(ctx context.Context, address, image string) error {
	//nolint:staticcheck // Talos before 1.13 has nothing else.
	_, err := c.client.UpgradeWithOptions(c.guarded(ctx, address),
		client.WithUpgradeImage(image), client.WithUpgradePreserve(true), client.WithUpgradeRebootMode(machineapi.UpgradeRequest_DEFAULT))
	if err != nil {
		return fmt.Errorf("upgrading %s to %s: %w", address, image, err)
	}
	return nil
}

// drainStream hands every message of a stream to each, until it ends.
func drainStream[T any](recv func() (T, error), each func(T)) error {
	for {
		message, err := recv()
		switch {
		case err == io.EOF: //nolint:errorlint // gRPC returns it as it is.
			return nil
		case err != nil:
			return err
		}
		each(message)
	}
}

func (c *connection) ForfeitLeadership(ctx context.Context, address string) error {
	if _, err := c.client.EtcdForfeitLeadership(c.guarded(ctx, address), &machineapi.EtcdForfeitLeadershipRequest{}); err != nil {
		return fmt.Errorf("forfeiting etcd's leadership at %s: %w", address, err)
	}
	return nil
}

func (c *connection) Reboot(ctx context.Context, address string, mode v1alpha1.RebootMode) error {
	request := map[v1alpha1.RebootMode]machineapi.RebootRequest_Mode{
		v1alpha1.RebootModePowerCycle: machineapi.RebootRequest_POWERCYCLE,
		v1alpha1.RebootModeForce:      machineapi.RebootRequest_FORCE,
	}[mode] // The zero value is the default mode.
	if err := c.client.Reboot(c.guarded(ctx, address), func(r *machineapi.RebootRequest) { r.Mode = request }); err != nil {
		return fmt.Errorf("rebooting %s: %w", address, err)
	}
	return nil
}

// dialTimeout bounds one attempt to connect to one endpoint.
const dialTimeout = 3 * time.Second
