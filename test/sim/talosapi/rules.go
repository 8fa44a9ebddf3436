// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// rule says who may call a method, and whether the call changes anything.
type rule struct {
	roles   role.Set
	mutates bool
}

var (
	admins    = role.MakeSet(role.Admin)
	operators = role.MakeSet(role.Admin, role.Operator)
	readers   = role.MakeSet(role.Admin, role.Operator, role.Reader)
	etcdUsers = role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	snapshots = role.MakeSet(role.Admin, role.Operator, role.EtcdBackup)
	metaUsers = role.MakeSet(role.Admin, role.MetaWriter)
	verifiers = role.MakeSet(role.Admin, role.ImageVerifier)
)

// ruleOf returns the rule of a method. What is not in the table is for administrators, and counts as a change.
func ruleOf(method string) rule {
	if r, ok := rules[method]; ok {
		return r
	}
	return rule{roles: admins, mutates: true}
}

var rules = map[string]rule{
	"/cosi.resource.State/Get":   {roles: readers},
	"/cosi.resource.State/List":  {roles: readers},
	"/cosi.resource.State/Watch": {roles: readers},

	"/cluster.ClusterService/HealthCheck":                   {roles: readers},
	"/inspect.InspectService/ControllerRuntimeDependencies": {roles: readers},
	"/storage.StorageService/Disks":                         {roles: readers},
	"/time.TimeService/Time":                                {roles: readers},
	"/time.TimeService/TimeCheck":                           {roles: readers},

	"/machine.ImageService/List":   {roles: readers},
	"/machine.ImageService/Pull":   {roles: operators, mutates: true},
	"/machine.ImageService/Verify": {roles: verifiers},

	"/machine.MachineService/Containers":            {roles: readers},
	"/machine.MachineService/Copy":                  {roles: admins},
	"/machine.MachineService/CPUFreqStats":          {roles: readers},
	"/machine.MachineService/CPUInfo":               {roles: readers},
	"/machine.MachineService/DiskStats":             {roles: readers},
	"/machine.MachineService/DiskUsage":             {roles: readers},
	"/machine.MachineService/Dmesg":                 {roles: readers},
	"/machine.MachineService/EtcdAlarmDisarm":       {roles: operators, mutates: true},
	"/machine.MachineService/EtcdAlarmList":         {roles: etcdUsers},
	"/machine.MachineService/EtcdDefragment":        {roles: operators, mutates: true},
	"/machine.MachineService/EtcdMemberList":        {roles: etcdUsers},
	"/machine.MachineService/EtcdSnapshot":          {roles: snapshots},
	"/machine.MachineService/EtcdStatus":            {roles: etcdUsers},
	"/machine.MachineService/Events":                {roles: readers},
	"/machine.MachineService/Hostname":              {roles: readers},
	"/machine.MachineService/ImageList":             {roles: readers},
	"/machine.MachineService/ImagePull":             {roles: operators, mutates: true},
	"/machine.MachineService/Kubeconfig":            {roles: admins},
	"/machine.MachineService/List":                  {roles: readers},
	"/machine.MachineService/LoadAvg":               {roles: readers},
	"/machine.MachineService/Logs":                  {roles: readers},
	"/machine.MachineService/LogsContainers":        {roles: readers},
	"/machine.MachineService/Memory":                {roles: readers},
	"/machine.MachineService/MetaDelete":            {roles: metaUsers, mutates: true},
	"/machine.MachineService/MetaWrite":             {roles: metaUsers, mutates: true},
	"/machine.MachineService/Mounts":                {roles: readers},
	"/machine.MachineService/Netstat":               {roles: readers},
	"/machine.MachineService/NetworkDeviceStats":    {roles: readers},
	"/machine.MachineService/PacketCapture":         {roles: operators},
	"/machine.MachineService/Processes":             {roles: readers},
	"/machine.MachineService/Read":                  {roles: admins},
	"/machine.MachineService/Reboot":                {roles: operators, mutates: true},
	"/machine.MachineService/Restart":               {roles: operators, mutates: true},
	"/machine.MachineService/ServiceList":           {roles: readers},
	"/machine.MachineService/ServiceRestart":        {roles: operators, mutates: true},
	"/machine.MachineService/ServiceStart":          {roles: operators, mutates: true},
	"/machine.MachineService/ServiceStop":           {roles: operators, mutates: true},
	"/machine.MachineService/Shutdown":              {roles: operators, mutates: true},
	"/machine.MachineService/Stats":                 {roles: readers},
	"/machine.MachineService/SystemStat":            {roles: readers},
	"/machine.MachineService/Version":               {roles: readers},
	"/machine.MachineService/EtcdDowngradeValidate": {roles: admins},
}
