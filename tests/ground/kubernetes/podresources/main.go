// The kubelet's own pod-resources service, of pods and devices that a file of JSON lists: podresources SOCKET FILE.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
)

type pod struct {
	Name, Namespace, UID string
	// By container and resource.
	Devices map[string]map[string][]string
	// By container and driver of dynamic resource allocation.
	Claims map[string]map[string][]string
}

// node provides what the file says at the moment of the call.
type node string

func (n node) pods() []pod {
	var found []pod
	content, err := os.ReadFile(string(n))
	if err == nil {
		err = json.Unmarshal(content, &found)
	}
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func (n node) GetPods() []*v1.Pod {
	var made []*v1.Pod
	for _, p := range n.pods() {
		one := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: types.UID(p.UID)}}
		names := map[string]bool{}
		for name := range p.Devices {
			names[name] = true
		}
		for name := range p.Claims {
			names[name] = true
		}
		for name := range names {
			one.Spec.Containers = append(one.Spec.Containers, v1.Container{Name: name})
		}
		made = append(made, one)
	}
	return made
}

func (n node) GetActivePods() []*v1.Pod { return n.GetPods() }

func (n node) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, p := range n.GetPods() {
		if p.Namespace == namespace && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

func (n node) UpdateAllocatedDevices() {}

func (n node) GetAllocatableDevices() []*podresourcesv1.ContainerDevices { return nil }

func (n node) GetDevices(podUID, container string) []*podresourcesv1.ContainerDevices {
	var found []*podresourcesv1.ContainerDevices
	for _, p := range n.pods() {
		if p.UID == podUID {
			for resource, ids := range p.Devices[container] {
				found = append(found, &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: ids})
			}
		}
	}
	return found
}

func (n node) GetCPUs(podUID, container string) []int64 { return nil }

func (n node) GetAllocatableCPUs() []int64 { return nil }

func (n node) GetMemory(podUID, container string) []*podresourcesv1.ContainerMemory { return nil }

func (n node) GetAllocatableMemory() []*podresourcesv1.ContainerMemory { return nil }

func (n node) GetDynamicResources(pod *v1.Pod, container *v1.Container) []*podresourcesv1.DynamicResource {
	var found []*podresourcesv1.DynamicResource
	for _, p := range n.pods() {
		if types.UID(p.UID) != pod.UID {
			continue
		}
		for driver, devices := range p.Claims[container.Name] {
			claim := &podresourcesv1.DynamicResource{ClaimName: "claim", ClaimNamespace: p.Namespace}
			for _, device := range devices {
				claim.ClaimResources = append(claim.ClaimResources,
					&podresourcesv1.ClaimResource{DriverName: driver, PoolName: "node", DeviceName: device})
			}
			found = append(found, claim)
		}
	}
	return found
}

func main() {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	n := node(os.Args[2])
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(context.Background(),
		podresources.PodResourcesProviders{Pods: n, Devices: n, Cpus: n, Memory: n, DynamicResources: n}))
	log.Fatal(server.Serve(listener))
}
