// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/service"
)

func newClusterCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "List and import clusters", Aliases: []string{"clusters"}, Args: cobra.NoArgs}
	cmd.AddCommand(newClusterListCommand(c), newClusterGetCommand(c), newClusterImportCommand(c))
	return cmd
}

func newClusterListCommand(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the clusters of the hub",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.connect(); err != nil {
				return err
			}
			list := &v1alpha1.TalosClusterList{}
			if err := c.service.Client.List(cmd.Context(), list, c.within(all)); err != nil {
				return fmt.Errorf("listing clusters: %w", err)
			}
			return c.printList(list, "No clusters. Bring one with: ichor cluster import NAME", func() table { return clusterTable(list.Items) })
		},
	}
	addAllNamespaces(cmd, &all)
	return cmd
}

func addAllNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "list those of all namespaces")
}

// within limits a list to the namespace, unless all are wanted.
func (c *cli) within(all bool) client.ListOption {
	if all {
		return client.InNamespace("")
	}
	return client.InNamespace(c.namespace)
}

func clusterTable(clusters []v1alpha1.TalosCluster) table {
	t := table{header: []string{"NAME", "AVAILABLE", "TALOS", "DESIRED", "KUBERNETES", "MACHINES", "LOCK", "AGE"}}
	for i := range clusters {
		cluster := &clusters[i]
		t.rows = append(t.rows, []string{
			cluster.Name, statusOf(cluster.Status.Conditions, v1alpha1.AvailableCondition), strings.Join(cluster.Status.TalosVersions, ","),
			cluster.Spec.TalosVersion, cluster.Status.KubernetesVersion, machineCount(cluster), shortHolder(cluster.Status.LockHolder),
			age(cluster.CreationTimestamp, time.Now()),
		})
	}
	return t
}

func machineCount(cluster *v1alpha1.TalosCluster) string {
	if cluster.Status.Machines == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", ptr.Deref(cluster.Status.Machines.Ready, 0), ptr.Deref(cluster.Status.Machines.Total, 0))
}

// shortHolder is the name of whoever holds a lock.
func shortHolder(identity string) string {
	return identity[strings.LastIndex(identity, "/")+1:]
}

func newClusterGetCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME",
		Short: "Show a cluster: versions, conditions, machines",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.connect(); err != nil {
				return err
			}
			facts, err := c.service.Facts(cmd.Context(), client.ObjectKey{Namespace: c.namespace, Name: args[0]})
			if err != nil {
				return err
			}
			if c.output != outputTable {
				return c.printObject(facts.Cluster)
			}
			return c.describeCluster(facts.Cluster, facts.Machines)
		},
	}
}

func (c *cli) describeCluster(cluster *v1alpha1.TalosCluster, machines []v1alpha1.TalosMachine) error {
	if err := c.printTable(clusterTable([]v1alpha1.TalosCluster{*cluster})); err != nil {
		return err
	}
	conditions := table{header: []string{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	for _, condition := range cluster.Status.Conditions {
		conditions.rows = append(conditions.rows, []string{condition.Type, string(condition.Status), condition.Reason, condition.Message})
	}
	fmt.Fprintln(c.out)
	if err := c.printTable(conditions); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	return c.printTable(machineTable(machines))
}

func newClusterImportCommand(c *cli) *cobra.Command {
	var in service.Import
	var kubeconfig, talosconfig string
	cmd := &cobra.Command{
		Use:   "import NAME",
		Short: "Let the hub manage a cluster",
		Long: `Let the hub manage a cluster that exists.

Both files are checked, and used once from here to see whether they open the same cluster. Then they are kept as Secrets on the
management API; of a file with several contexts, only the chosen one. Nothing on the cluster is changed. Importing again brings new
credentials.

Without the two files, NAME is a Cluster that Cluster API's providers made: the hub works with the credentials that they keep (Secrets
NAME-kubeconfig and NAME-talosconfig), and on the machines that they have Machines for.`,
		Example: `  ichor cluster import prod-1 --from-kubeconfig prod-1.kubeconfig --from-talosconfig ~/.talos/config
  ichor cluster import made-by-cluster-api`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name = args[0]
			if kubeconfig == "" && talosconfig == "" {
				return c.importCluster(cmd, in, c.adopt)
			}
			var err error
			if in.Kubeconfig, err = os.ReadFile(kubeconfig); err != nil {
				return fmt.Errorf("--from-kubeconfig: %w", err)
			}
			if in.Talosconfig, err = os.ReadFile(talosconfig); err != nil {
				return fmt.Errorf("--from-talosconfig: %w", err)
			}
			return c.importCluster(cmd, in, c.bring)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "from-kubeconfig", "", "file with the cluster's kubeconfig")
	flags.StringVar(&talosconfig, "from-talosconfig", "", "file with the cluster's talosconfig")
	flags.StringVar(&in.KubeContext, "from-kubeconfig-context", "", "context of the kubeconfig (default: the current one, else the only one)")
	flags.StringVar(&in.TalosContext, "from-context", "", "context of the talosconfig (default: the one named like the cluster, else the only one)")
	flags.BoolVar(&in.AllowInsecure, "allow-insecure-kubeconfig", false, "take a kubeconfig that does not check the API server's certificate")
	flags.BoolVar(&in.TakeOver, "take-over", false, "take the cluster over from the hub that manages it, which must not work on it any more")
	flags.BoolVar(&in.Offline, "offline", false, "do not look at the cluster, for one that cannot be reached from here or now")
	cmd.MarkFlagsRequiredTogether("from-kubeconfig", "from-talosconfig")
	return cmd
}

// importCluster imports a cluster in one of two ways, and says what to do next.
func (c *cli) importCluster(cmd *cobra.Command, in service.Import, way func(context.Context, service.Import) (*v1alpha1.TalosCluster, error)) error {
	if err := c.connect(); err != nil {
		return err
	}
	in.Namespace = c.namespace
	cluster, err := way(cmd.Context(), in)
	if err != nil {
		return fmt.Errorf("importing cluster %s: %w", in.Name, err)
	}
	if c.output != outputTable {
		return c.printObject(cluster)
	}
	fmt.Fprintf(c.out, "Cluster %s is imported. See whether it can be reached: ichor cluster get %[1]s\n", cluster.Name)
	return nil
}

// bring imports a cluster with the files that somebody brought.
func (c *cli) bring(ctx context.Context, in service.Import) (*v1alpha1.TalosCluster, error) {
	return c.service.Import(ctx, in)
}

// adopt imports a cluster of Cluster API's providers.
func (c *cli) adopt(ctx context.Context, in service.Import) (*v1alpha1.TalosCluster, error) {
	return c.service.Adopt(ctx, in)
}
