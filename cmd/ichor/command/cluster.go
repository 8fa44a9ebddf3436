// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func newClusterCommand(a *app) *cobra.Command {
	return group("cluster", "List, import and forget clusters, stop, start and restore them, rotate their authorities and keys", []string{"clusters"},
		newClusterListCommand(a), newClusterGetCommand(a), newClusterImportCommand(a), newClusterForgetCommand(a),
		a.startCommand(a.shutdownOrder("shutdown NAME", "  ichor cluster shutdown prod-1 --no-snapshot --follow")),
		a.startCommand(a.powerOnOrder("start NAME", "  ichor cluster start prod-1 --follow")),
		a.startCommand(a.rotateKeysOrder("rotate-keys NAME", "  ichor cluster rotate-keys prod-1 --key both --follow")),
		a.startCommand(a.rotateCAOrder("rotate-ca NAME", "  ichor cluster rotate-ca prod-1 --authority talos --follow")), newBundleExportCommand(a),
		a.startCommand(a.restoreOrder("restore NAME", `  ichor cluster restore prod-1 --from prod-1-202611300300 --safety-snapshot --follow
  ichor cluster restore prod-1 --from before-migration --no-safety-snapshot --confirm prod-1`)))
}

func newClusterListCommand(a *app) *cobra.Command {
	var all bool
	request := &pb.ListClustersRequest{Filter: &pb.ClusterFilter{}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the clusters of the hub",
		Args:    cobra.NoArgs,
		RunE: a.connected(func(cmd *cobra.Command, _ []string) error {
			if !all {
				request.Filter.Namespaces = []string{a.namespace}
			}
			list, err := a.listClusters(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("listing clusters: %w", err)
			}
			items := make([]item, len(list.GetClusters()))
			for i, cluster := range list.GetClusters() {
				items[i] = a.item(cluster, clusterResource, cluster.GetRef())
			}
			err = a.printList(list, items, "No clusters. Bring one with: ichor cluster import NAME", func() table {
				return a.clusterTable(list.GetClusters(), all)
			})
			if err != nil {
				return err
			}
			return a.partial(list.GetFailures())
		}),
	}
	addAllNamespaces(cmd, &all)
	addSelection(cmd, &request.Filter.LabelSelector, &request.Filter.Text, &request.OrderBy,
		"name, create_time, attention, talos_version, kubernetes_version")
	return cmd
}

// addSelection adds the flags that lists have in common.
func addSelection(cmd *cobra.Command, selector, text, orderBy *string, fields string) {
	flags := cmd.Flags()
	flags.StringVarP(selector, "selector", "l", "", "label selector, such as env=prod")
	flags.StringVar(text, "text", "", "text to look for, whatever its case")
	flags.StringVar(orderBy, "sort", "", `field to sort by, and "desc" for the other way round: `+fields)
}

// withNamespace puts a column for the namespace before the others of a list of all namespaces.
func withNamespace(t table, all bool, namespaces []string) table {
	if !all {
		return t
	}
	t.columns = append(columns("NAMESPACE"), t.columns...)
	for i := range t.rows {
		t.rows[i] = append([]string{namespaces[i]}, t.rows[i]...)
	}
	return t
}

func (a *app) clusterTable(clusters []*pb.Cluster, all bool) table {
	t := table{columns: columns("NAME", "AVAILABLE", "TALOS", "DESIRED", "KUBERNETES", "MACHINES", "LOCK", "AGE", "+MODE", "+ATTENTION", "+ENDPOINT", "+WHY")}
	namespaces := make([]string, len(clusters))
	for i, c := range clusters {
		namespaces[i] = c.GetRef().GetNamespace()
		t.rows = append(t.rows, []string{
			c.GetRef().GetName(), statusOf(c.GetConditions(), v1alpha1.AvailableCondition), versionRange(c.GetTalosVersions()),
			c.GetDesired().GetTalosVersion(), versionRange(c.GetKubernetesVersions()), machineCount(c), lockHolder(c.GetLock()), a.age(c.GetCreateTime()),
			word("CLUSTER_MODE_", c.GetMode()), word("ATTENTION_", c.GetAttention()), c.GetEndpoint(), c.GetAttentionReason(),
		})
	}
	return withNamespace(t, all, namespaces)
}

// versionRange is what machines run: one version, or the lowest and the highest.
func versionRange(r *pb.VersionRange) string {
	if r.GetLowest() == r.GetHighest() || r.GetHighest() == "" {
		return r.GetLowest()
	}
	return r.GetLowest() + "," + r.GetHighest()
}

func machineCount(c *pb.Cluster) string {
	total := c.GetControlPlanes() + c.GetWorkers()
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", c.GetMachinesReady(), total)
}

// lockHolder is the short name of whoever holds a lock.
func lockHolder(lock *pb.LockHolder) string {
	if lock.GetOperation().GetName() != "" {
		return lock.GetOperation().GetName()
	}
	return lock.GetHolder()[strings.LastIndex(lock.GetHolder(), "/")+1:]
}

// statusOf is the status of a condition, Unknown if there is none.
func statusOf(conditions []*pb.Condition, kind string) string {
	for _, c := range conditions {
		if c.GetType() == kind {
			return word("CONDITION_STATUS_", c.GetStatus())
		}
	}
	return "Unknown"
}

func newClusterGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a cluster: versions, conditions, machines",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(a.clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, args []string) error {
			name, err := clusterResource.parse(args[0], a.namespace)
			if err != nil {
				return err
			}
			response, err := call(cmd.Context(), a, a.connection.clusters.GetCluster, &pb.GetClusterRequest{Ref: name})
			if err != nil {
				return err
			}
			if !a.forPeople() {
				return a.printItem(a.item(response.GetCluster(), clusterResource, name))
			}
			return a.describeCluster(response.GetCluster(), response.GetMachines())
		}),
	}
}

func (a *app) describeCluster(cluster *pb.Cluster, machines []*pb.Machine) error {
	if err := a.printTable(a.clusterTable([]*pb.Cluster{cluster}, false)); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	if why := cluster.GetAttentionReason(); why != "" {
		if err := a.printLines([][2]string{{"Attention", why}}); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
	}
	if err := a.printTable(conditionTable(cluster.GetConditions())); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	return a.printTable(a.machineTable(machines, false))
}

func conditionTable(conditions []*pb.Condition) table {
	t := table{columns: columns("CONDITION", "STATUS", "REASON", "MESSAGE")}
	for _, c := range conditions {
		t.rows = append(t.rows, []string{c.GetType(), word("CONDITION_STATUS_", c.GetStatus()), c.GetReason(), c.GetMessage()})
	}
	return t
}

func newClusterImportCommand(a *app) *cobra.Command {
	request := &pb.ImportClusterRequest{}
	var kubeconfig, talosconfig string
	cmd := &cobra.Command{
		Use:   "import NAME",
		Short: "Let the hub manage a cluster",
		Long: `Let the hub manage a cluster that exists.

Both files are checked, and used once to see whether they open the same cluster. Then they are kept as Secrets on the management API; of a
file with several contexts, only the chosen one. Nothing on the cluster is changed. Importing again brings new credentials.

Without the two files, NAME is a Cluster that Cluster API's providers made: the hub works with the credentials that they keep (Secrets
NAME-kubeconfig and NAME-talosconfig), and on the machines that they have Machines for.`,
		Example: `  ichor cluster import prod-1 --from-kubeconfig prod-1.kubeconfig --from-talosconfig ~/.talos/config
  ichor cluster import made-by-cluster-api`,
		Args: cobra.ExactArgs(1),
		RunE: a.connected(func(cmd *cobra.Command, args []string) error {
			var err error
			if request.Ref, err = clusterResource.parse(args[0], a.namespace); err != nil {
				return err
			}
			if request.Kubeconfig, err = fileOf("--from-kubeconfig", kubeconfig); err != nil {
				return err
			}
			if request.Talosconfig, err = fileOf("--from-talosconfig", talosconfig); err != nil {
				return err
			}
			return a.importCluster(cmd.Context(), request)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "from-kubeconfig", "", "file with the cluster's kubeconfig")
	flags.StringVar(&talosconfig, "from-talosconfig", "", "file with the cluster's talosconfig")
	flags.StringVar(&request.KubeContext, "from-kubeconfig-context", "", "context of the kubeconfig (default: the current one, else the only one)")
	flags.StringVar(&request.TalosContext, "from-context", "", "context of the talosconfig (default: the one named like the cluster, else the only one)")
	flags.BoolVar(&request.AllowInsecure, "allow-insecure-kubeconfig", false, "take a kubeconfig that does not check the API server's certificate")
	flags.BoolVar(&request.TakeOver, "take-over", false, "take the cluster over from the hub that manages it, which must not work on it any more")
	flags.BoolVar(&request.Offline, "offline", false, "do not look at the cluster, for one that cannot be reached from here or now")
	flags.StringToStringVar(&request.Labels, "label", nil, "label of the Cluster, as KEY=VALUE; may be given several times")
	cmd.MarkFlagsRequiredTogether("from-kubeconfig", "from-talosconfig")
	return cmd
}

// fileOf reads a file that a flag names; nothing if it names none.
func fileOf(flag, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case data == nil:
		data = []byte{}
	}
	return data, nil
}

// importCluster imports a cluster, and says what to do next.
func (a *app) importCluster(ctx context.Context, request *pb.ImportClusterRequest) error {
	name := a.named(request.GetRef())
	response, err := call(ctx, a, a.connection.clusters.ImportCluster, request)
	if err != nil {
		return fmt.Errorf("importing cluster %s: %w", name, err)
	}
	if !a.forPeople() {
		return a.printItem(a.item(response.GetCluster(), clusterResource, request.GetRef()))
	}
	fmt.Fprintf(a.Out, "Cluster %s is imported. See whether it can be reached: ichor cluster get %[1]s\n", name)
	return nil
}

func newClusterForgetCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "forget NAME",
		Short: "Take a cluster out of the hub, and touch no machine",
		Long: `Take a cluster out of the hub.

The cluster itself stays as it is: no machine is touched. The hub forgets its credentials, so keep the files that it was imported with. An
operation that is under way settles first.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(a.clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, args []string) error {
			name, err := clusterResource.parse(args[0], a.namespace)
			if err != nil {
				return err
			}
			a.remark("The %s forgets cluster %s and its credentials. No machine is touched.", a.connection.where, a.named(name))
			if err := a.ask(cmd.Context(), "Forget it?", yes); err != nil {
				return err
			}
			response, err := call(cmd.Context(), a, a.connection.clusters.ForgetCluster, &pb.ForgetClusterRequest{Ref: name})
			if err != nil {
				return fmt.Errorf("forgetting cluster %s: %w", a.named(name), err)
			}
			if response.GetGone() {
				fmt.Fprintf(a.Out, "Cluster %s is forgotten.\n", a.named(name))
			} else {
				fmt.Fprintf(a.Out, "Cluster %s is being forgotten: an operation settles first. See: ichor cluster get %[1]s\n", a.named(name))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for a confirmation")
	return cmd
}
