"""Inputs in each parser's format, for the fuzzers to change."""

KERNEL_LINES = (
    "NVRM: Xid (PCI:0000:3b:00): 95, pid=7062, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, pid=1, name=a, Ch 00000008, intr 00000000. MMU Fault",
    "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x004a7c86 0x00000000)",
    "NVRM: GPU at PCI:0000:3b:00: GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
    "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 12028, Non-fatal, Link 46 egress non-posted PRIV error",
    "mlx5_core 0000:1a:00.0 eth2: Link down\nmlx5_core 0000:1a:00.0: Port module event: module 0, Cable error",
    "mlx5_core 0000:1a:00.0: mlx5_pcie_event:301:(pid 0): Detected insufficient power on the PCIe slot (75W).",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:4711]",
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only\nI/O error, dev nvme0n1, sector 12345 op 0x1:(WRITE)",
    "mce: [Hardware Error]: Machine check events logged\nEDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0",
    "Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:1kB\noom-kill:constraint=CONSTRAINT_NONE",
    "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0",
)
KMSG = "".join(f"4,{number},{number}000000,-;{line}\n SUBSYSTEM=pci\n"
               for number, line in enumerate("\n".join(KERNEL_LINES).split("\n"))) + (
    "4,100,1,c,caller=T1;piece\n12,101,2,-;NVRM: Xid (PCI:0000:3b:00): 95, forged\n4,x,y,-;\n;;\n")

PAGES = (
    ('# HELP DCGM_FI_DEV_GPU_TEMP x\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n'
     'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-aaaa",pci_bus_id="00000000:3B:00.0",device="nvidia0",Hostname="n"} 91\n'
     'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-aaaa",err_code="79"} 79\n'
     'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0",UUID="GPU-aaaa",GPU_I_ID="3"} 9223372036854775794\n'
     'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-aaaa"} 1.5e+10 1700000000000\n'),
    ('gpu_edge_temperature{gpu_id="0",gpu_uuid="a",serial_number="s",hostname="h"} NaN\n'
     'gpu_ecc_uncorrect_total{gpu_id="0",serial_number="s"} +Inf\ngpu_health{gpu_id="0",serial_number="s"} 1\n'),
    ('npu_chip_info_health_status{id="0",vdie_id="A-B",model_name="910B",pcie_bus_info="0000:c1:00.0"} 1\n'
     'npu_chip_info_temperature{id="0",vdie_id="A-B"} 51 1700000000000\n'),
    'xpum_temperature_celsius{dev_file="card0",uuid="u",pci_bdf="0000:4d:00.0",location="gpu"} 41\n',
)

RECORDINGS = (
    ('{"at":0,"node":{"name":"gpu-7","uid":"u1","boot_id":"b1","expect":{"gpu":8,"rdma":{"mlx5_0":{"rate_gbps":400}}}}}\n'
     '{"at":0,"nvml":{"gpus":{"GPU-a":{"index":0,"pci":"0000:3b:00.0","gpu_temperature_celsius":95,'
     '"nvlink_state":{"0":"active"}},"GPU-b":{"error":"GPU_IS_LOST"},"GPU-c":{"hang":true}}}}\n'
     '{"at":1,"kmsg":"4,88123,512000111,-;NVRM: Xid (PCI:0000:3b:00): 95, pid=7062, name=python3, Uncontained"}\n'
     '{"at":1.6,"kmsg_error":"EPIPE"}\n'
     '{"at":2,"nvml_event":{"uuid":"GPU-a","type":8,"data":94,"gpu_instance":4294967295}}\n'
     '{"at":3,"exporter":{"name":"dcgm","page":"DCGM_FI_DEV_GPU_TEMP{gpu=\\"0\\",UUID=\\"GPU-a\\"} 91\\n"}}\n'
     '{"at":4,"sysfs":{"class/infiniband/mlx5_0/ports/1/state":"4: ACTIVE","class/infiniband/mlx5_0/ports/1/rate":'
     '{"error":"EIO"},"class/infiniband/mlx5_0/device":{"link":"../../../0000:3c:00.0"}},"of":"rdma","began":3.5}\n'
     '{"at":5,"host":{"host_memory_available_ratio":0.4}}\n{"at":6,"pods":{"GPU-a":[{"uid":"p1"}],"GPU-b":null}}\n'
     '{"at":7,"repaired":{"device":"gpu/GPU-a","action":"reset_gpu"}}\n{"at":8,"agent_restart":true}\n'
     '{"at":9,"reboot":{"boot_id":"b2"}}\n{"until":600}\n'),
    ('{"at":5.5,"recorded":{"version":"1","rules":"x","soak":600,"any_facility":true}}\n'
     '{"at":5.5,"told":{"source":"agent","facts":[{"booted":{"boot_id":"b","at":0.0}},{"kinds_here":{"kinds":["gpu"]}},'
     '{"source_state":{"up":false,"caught_up":false}},{"stalled":{"device":"node","since":1.5}},{"gap":{"lost":3}}],'
     '"samples":[["gpu_temperature_celsius","gpu/GPU-a",91],["nvlink_state","gpu/GPU-a","active",{"link":"0"}]],'
     '"events":[{"signal":"gpu_xid","device":"gpu/GPU-a","attributes":{"code":79},"stamp":1.0,"at":1.0,"key":"7"}],'
     '"complete":true,"counts":{"x_total":1},"then":[{"samples":[["gpu_count","node",8]]}]}}\n'
     '{"at":6,"kmsg":["4,1,1,-;x",{"raw":"y"}],"happened":{"1":0.5}}\n'
     '{"at":7,"memory":{"boot_id":"b","node_uid":"u","node":{},"boot":null,"kmsg":{"cursor":4}}}\n'),
)
RECORDING_YAML = (
    '- {at: 0, nvml: {gpus: {GPU-a: {gpu_temperature_celsius: 95, nvlink_state: {0: active}}}}}\n'
    '- at: 4\n  sysfs: {class/infiniband/mlx5_0/ports/1/state: "4: ACTIVE"}\n- {until: 600}\n')

RULES = """apiVersion: nodeguard.io/v1
kind: RuleSet
metadata: {name: test}
rules:
- name: gpu-hot
  signal: gpu_temperature_celsius
  above: {signal: gpu_temperature_slowdown_celsius, plus: -3}
  for: 10s
  require: [{signal: gpu_utilization_ratio, above: 0.05}]
  severity: warning
  action: none
  effect: condition
  condition: GpuThermal
  clear: {below: {signal: gpu_temperature_slowdown_celsius, plus: -8}, after: 1m}
  message: "{device} is {value}"
- name: gpu-lost
  signal: gpu_lost
  severity: critical
  action: reboot_node
  effect: evict
  condition: GpuLost
  clear: {on: reboot}
  message: "{device} is lost"
- name: flaps
  signal: rdma_link_downed_total
  increase: {at_least: 2, within: 10m}
  severity: warning
  action: none
  effect: event
  clear: {after: 15m, while: {signal: rdma_port_state, is: ACTIVE}}
  message: "flaps"
- name: repeats
  signal: gpu_xid
  match: {code: {not: [43, 31]}, class: {regex: "mem.*"}}
  count: {at_least: 3, within: 10m, distinct: pod}
  severity: info
  action: none
  effect: event
  clear: {after: 1h}
  message: "again"
"""
OVERRIDES = """apiVersion: nodeguard.io/v1
kind: Overrides
overrides:
- rule: gpu-hot
  nodes: {pool: a}
  above: 91
- {rule: gpu-lost, mode: off}
"""
MAPPING = """apiVersion: nodeguard.io/v1
kind: ExporterMapping
metadata: {name: test, vendor: amd}
device: {uuid: [gpu_uuid], pci: [pci_bus_id], index: [gpu_id]}
prefixes: ["", amd_]
blanks: [[65535, 65535], [1.8446744073709551e19, 1.9e19]]
moving: [gpu_energy_consumed]
metrics:
  gpu_edge_temperature: {signal: gpu_temperature_celsius, scale: 0.01}
  gpu_health: {signal: gpu_health_state, labels: {part: device}, values: {1: healthy, 0: unhealthy}}
  gpu_nodes_total: {signal: gpu_count, on: node}
"""
ANNOTATIONS = (
    "gpu-lost@2026-01-31T12:00:00Z, gpu-hot/gpu/GPU-aaaa@2026-01-31T12:00:00+02:00", "2026-01-31T12:00:00.123Z",
    ('{"v":1,"boot":"b","rules":"h","at":"2026-01-31T12:00:00Z","faults":[{"rule":"gpu-lost","device":"gpu/GPU-a",'
     '"pci":"0000:3b:00.0","severity":"critical","action":"reboot_node","effect":"evict","scope":"device",'
     '"condition":"GpuLost","since":"2026-01-31T12:00:00Z","count":2,"pods":[{"uid":"u"}]}],"cut":0}'),
)
CGROUPS = (
    ("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2f5a1b0c_1111_2222_3333_444455556666.slice/"
     "cri-containerd-abc.scope\n"),
    "12:cpu,cpuacct:/kubepods/burstable/pod2f5a1b0c-1111-2222-3333-444455556666/0123\n1:name=systemd:/\n",
)
CHECKPOINT = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"2f5a1b0c","ContainerName":"c","ResourceName":"nvidia.com/gpu",'
    '"DeviceIDs":{"0":["GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"],"-1":["MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"]},'
    '"AllocResp":"x"}],"RegisteredDevices":{}},"Checksum":1}')
SYSFS = ("0 4: ACTIVE\n1 5: LinkUp\n2 400 Gb/sec (4X NDR)\n3 InfiniBand\n17 18446744073709551615\n40 65535\n"
         "63 32.0 GT/s PCIe\n7 TOTAL_ERR_COR 12\n9 0x1021\n")
PROC_FILES = (
    "36 35 98:0 / /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n",
    "some avg10=0.00 avg60=12.50 avg300=1.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "oom_kill 3\nnr_free_pages 1\n", "Iface\tDestination\tGateway\tFlags\neth0\t00000000\t0100000A\t0003\t0\t0\t0\t0\n",
    "Ethernet Channel Bonding Driver: v5.15\n\nSlave Interface: eth0\nMII Status: up\nSlave Interface: eth1\n",
    "Inter-|   Receive\n face |bytes packets errs\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
)
