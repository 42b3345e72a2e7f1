# SPDX-License-Identifier: Apache-2.0
"""What is tried in the testbed. A scenario is a function of the cluster, in order of their running; it returns what goes into the report,
raises TestbedError where something does not hold, and leaves the cluster as it was."""
import json
import re
import shutil
import subprocess

from .cluster import NIC
from .errors import require
from .kinds import PLAIN
from .sums import Job
from .training import Training
from .waiting import wait_until

SCENARIOS = {}
KIND_OF = {}  # scenario -> the kind of machines that it needs
OLDEST_KERNEL = "6.1"  # that mlnet says it runs on
NO_FAULTS = {"loss_ppm": 0, "duplicate_ppm": 0, "reorder_ppm": 0, "corrupt_ppm": 0, "delay_us": 0}


def scenario(kind=PLAIN):
    def add(function):
        SCENARIOS[function.__name__], KIND_OF[function.__name__] = function, kind
        return function
    return add


def short_job(cluster, name, **more):
    return Job(cluster, name, "float32", 100_000, **more).start().finish()


def endless_job(cluster, name):
    """A job that is at work, and sums until it is told to stop."""
    job = Job(cluster, name, "float32", 100_000, endless=True).start()
    wait_until("the job transfers", lambda: job.calls() >= 2 or job.is_over(), 120)
    require(not job.is_over(), f"the job ended too early: {job.texts()}")
    return job


def finish_after(what, job):
    """The report of a job that goes on after `what`, and is stopped then."""
    calls = job.calls()
    wait_until(f"the job goes on after {what}", lambda: job.calls() >= calls + 2 or job.is_over(), 120)
    job.stop()
    return job.finish()


@scenario()
def allreduce(cluster):
    """right sums under the topology's losses, of four kinds; Debian's kernel, native XDP on virtio_net"""
    machines = cluster.on_all(cluster.describe)
    for one in machines:
        require(one["driver"] == "virtio_net" and one["mode"] == "native",
                f"{one['name']}: {one['driver']} in {one['mode']} mode, not virtio_net in native: {one['why']}")
    before = cluster.disturbed()
    jobs = [Job(cluster, "float32", "float32", 300_000).start().finish(), Job(cluster, "int32", "int32", 100_000).start().finish(),
            Job(cluster, "float64", "float64", 50_000).start().finish(), short_job(cluster, "two-ranks-a-host", ranks_per_host=2)]
    links = cluster.disturbed_since(before)
    for host in cluster.topology.hosts:
        for way in ("tx", "rx"):
            require(not host.faults[way]["loss_ppm"] or links[host.name][way]["drops"] > 0, f"{host.name}: netem has lost nothing ({way}): {links}")
    retransmits = sum(rank["retransmits"] for job in jobs for rank in job["counters"])
    require(retransmits > 0 or not any(link["drops"] for both in links.values() for link in both.values()), f"losses, and no retransmission: {links}")
    return {"machines": machines, "jobs": jobs, "links": links, "verdicts": {host.name: cluster.verdicts(host) for host in cluster.topology.hosts}}


@scenario()
def oldest(cluster):
    """the oldest kernel that mlnet supports: mlnetctl probe finds all it needs on every machine"""
    kernels = cluster.on_all(lambda host: cluster.machine(host).run("uname -r").strip())
    require(all(kernel.startswith(f"{OLDEST_KERNEL}.") for kernel in kernels), f"kernels {kernels}, not {OLDEST_KERNEL}")
    probes = cluster.on_all(lambda host: json.loads(cluster.machine(host).run("mlnetctl -j probe")))
    missing = [check for probe in probes for check in probe["checks"] if not check["ok"]]
    require(not missing, f"not all is there: {missing}")
    return {"kernels": kernels}


@scenario("newer")
def newest(cluster):
    """the newest kernel that Debian has for its release (backports): what 6.1 has not is found and used, sums are right, also over a restart"""
    kernels = cluster.on_all(lambda host: cluster.machine(host).run("uname -r").strip())
    require(not any(kernel.startswith(f"{OLDEST_KERNEL}.") for kernel in kernels), f"kernels {kernels}: not newer than {OLDEST_KERNEL}")
    tags = [cluster.iface(host)["tags"] for host in cluster.topology.hosts]
    require(set(tags) == {"tcx"}, f"packets are marked through {tags}, not tcx, which this kernel has")
    job = endless_job(cluster, "newest")
    cluster.machine(cluster.topology.aggregators[0]).run("systemctl restart mlnetd")
    return {"kernels": kernels, "jobs": [finish_after("a restart", job), short_job(cluster, "newest-again", ranks_per_host=2)]}


@scenario("racks")
def racks(cluster):
    """two racks with slow uplinks: sums that are made in the rack first cross the core once a rack, and have the bits of those made in one place"""
    rack = cluster.topology.racks[0]
    jobs, results, crossed = [], [], {}
    for shape in ("star", "rack"):
        cluster.machine(cluster.topology.workers[0]).run(f"mlnetctl job create by-{shape} --world-size {len(cluster.topology.workers)} --shape {shape}")
        before = cluster.uplink_bytes(rack)
        job = Job(cluster, f"by-{shape}", "float32", 200_000)
        jobs.append(job.start().finish())
        results.append(job.result.tobytes())
        crossed[shape] = cluster.uplink_bytes(rack) - before
    require(results[0] == results[1], "the sums have other bits when they are made in the racks first")
    # Two workers of the rack: two contributions leave it, or one; what was lost is sent again.
    require(crossed["rack"] < 0.75 * crossed["star"], f"as much leaves the rack as without sums in it: {crossed} bytes")
    return {"jobs": jobs, "bytes_out_of_the_rack": crossed}


@scenario()
def single_queue(cluster):
    """NICs with one queue: the kernel's log warns that XDP sends under a lock, and sums are right"""
    queues = cluster.provider.queues

    def set_queues(count):
        cluster.on_all(lambda host: cluster.machine(host).run(f"systemctl stop mlnetd; ethtool --set-channels {NIC} combined {count}"))
        cluster.on_all(cluster.configure)

    try:
        if queues > 1:
            set_queues(1)
        machines = cluster.on_all(cluster.describe)
        for one in machines:
            require(one["queues"] == 1 and one["mode"] == "native", f"{one['name']}: {one['queues']} queues, {one['mode']} mode")
            require(any("slower locked tx mode" in line for line in one["kernel_log"]), f"{one['name']}: the kernel warns of nothing: {one['kernel_log']}")
        job = short_job(cluster, "single-queue")
    finally:
        if queues > 1:
            set_queues(queues)
    return {"machines": machines, "job": job}


@scenario()
def netem(cluster):
    """right sums under delay, reordering, duplication and corruption of the links, one after the other"""
    kinds = {"delay": {"delay_us": 5_000, "loss_ppm": 10_000}, "reorder": {"delay_us": 2_000, "reorder_ppm": 250_000},
             "duplicate": {"duplicate_ppm": 50_000}, "corrupt": {"corrupt_ppm": 20_000}}
    try:
        jobs = []
        for kind, values in kinds.items():
            cluster.disturb({way: NO_FAULTS | values for way in ("tx", "rx")})
            jobs.append(short_job(cluster, kind))
    finally:
        cluster.disturb()
    damaged = sum(cluster.verdicts(host).get("DROP_CORRUPT", 0) for host in cluster.topology.hosts)
    require(damaged > 0, "netem corrupted packets, and no program has noticed one")
    return {"jobs": jobs, "damaged_packets": damaged}


@scenario()
def coexist(cluster):
    """xdp-filter on the same NICs through libxdp's dispatcher: it drops its packets, mlnet, which comes after it, sums its own, also over a restart"""
    shared = f'[[iface]]\nname = "{NIC}"\nmode = "native"\nshare = "shared"\n'
    drop_ins = "/etc/systemd/system/mlnetd.service.d"

    def join(host):
        # The daemon lets go of the NIC, the other program comes, the daemon comes back beside it.
        cluster.machine(host).run(f"systemctl stop mlnetd; mkdir -p {drop_ins}; cp /usr/share/mlnet/mlnetd-shared.conf {drop_ins}/; systemctl daemon-reload\n"
                                  f"xdp-filter load --mode native --features udp {NIC}; xdp-filter port 9999 --mode dst")
        cluster.configure(host, iface=shared)

    def part(host):
        cluster.machine(host).run(f"systemctl stop mlnetd; xdp-filter unload {NIC}; rm -r {drop_ins}; systemctl daemon-reload")
        cluster.configure(host)

    aggregator, worker = cluster.topology.aggregators[0], cluster.topology.workers[0]
    try:
        cluster.on_all(join)
        via = [cluster.iface(host)["via"] for host in cluster.topology.hosts]
        require(set(via) == {"dispatcher"}, f"attached through {via}, not the dispatcher")
        before = cluster.xdp_filter_hits(aggregator)
        job = endless_job(cluster, "beside-xdp-filter")
        cluster.machine(worker).run(f"for i in 1 2 3 4 5 6 7 8 9 10; do echo hello >/dev/udp/{aggregator.address}/9999; done")
        wait_until("xdp-filter has dropped what was sent to its port", lambda: cluster.xdp_filter_hits(aggregator) > before, 30)
        cluster.machine(aggregator).run("systemctl restart mlnetd")
        report = finish_after("a restart", job)
        programs = cluster.machine(aggregator).run(f"xdp-loader status {NIC}")
        order = [(int(priority), name) for priority, name in re.findall(r"^\s*=>\s+(\d+)\s+(\S+)", programs, re.M)]
        require(len(order) == 2 and order == sorted(order) and order[0][1].startswith("xdpfilt") and order[1][1] == "ml_dispatched",
                f"not both programs are there, each once, in the order of their priorities:\n{programs}")
    finally:
        cluster.on_all(part)
    return {"job": report, "programs": programs}


@scenario("torch")
def ddp(cluster):
    """PyTorch's DistributedDataParallel over the backend mlnet, as its package installed it: all ranks end with the parameters that NumPy finds"""
    return {"training": Training(cluster, "ddp", seed=1).start().finish()}


@scenario()
def generic(cluster):
    """generic mode on all NICs gives the same sums, and says that it is generic"""
    native = short_job(cluster, "native")
    try:
        cluster.on_all(lambda host: cluster.configure(host, iface=f'[[iface]]\nname = "{NIC}"\nmode = "generic"\n'))
        modes = [cluster.iface(host)["mode"] for host in cluster.topology.hosts]
        require(set(modes) == {"generic"}, f"modes {modes}, not generic")
        job = short_job(cluster, "generic")
    finally:
        cluster.on_all(cluster.configure)
    return {"jobs": [native, job]}


@scenario()
def vlan(cluster):
    """a VLAN device (generic mode): right sums, and the traffic class is the 802.1p priority on the wire, also of results"""
    device, traffic_class = f"{NIC}.77", 1
    identity = " ".join(f"{number}:{number}" for number in range(8))

    def join(host):
        address = host.address.replace("10.77.", "10.79.")
        cluster.machine(host).run(f"ip link add link {NIC} name {device} type vlan id 77 egress-qos-map {identity} ingress-qos-map {identity}\n"
                                  f"ip addr add {address}/24 dev {device}; ip link set {device} up")
        cluster.configure(host, iface=f'[[iface]]\nname = "{device}"\nmode = "generic"\n')

    def part(host):
        cluster.machine(host).run(f"ip link del {device} 2>/dev/null || true")
        cluster.configure(host)

    try:
        cluster.on_all(join)
        with cluster.counting_tags(traffic_class) as count:
            job = short_job(cluster, "vlan", traffic_class=traffic_class)
            tagged = count()
        for host in cluster.topology.hosts:
            require(tagged[host.name] > 0, f"{host.name} sent nothing with 802.1p priority {traffic_class}: {tagged}")
    finally:
        cluster.on_all(part)
    return {"job": job, "packets_with_priority": tagged}


@scenario()
def systemd(cluster):
    """the unit's hardening is in force, ranks of a user in group mlnet get right sums, a killed daemon comes back; none of it as root"""
    host = cluster.topology.workers[0]
    machine = cluster.machine(host)
    status = dict(line.split(":\t", 1) for line in machine.run("cat /proc/$(systemctl show -P MainPID mlnetd)/status").splitlines() if ":\t" in line)
    require(status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", f"no seccomp filter, or new privileges are possible: {status}")
    for kind in ("CapEff", "CapBnd"):  # CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF
        require(int(status[kind], 16) == 1 << 12 | 1 << 38 | 1 << 39, f"{kind}: {status[kind]}")
    require(status["Uid"].split()[0] == machine.run("id -u mlnet").strip(), f"not as mlnet: {status['Uid']}")
    exposure = machine.run("systemd-analyze security --no-pager mlnetd.service | tail -n 1").strip()
    workers = cluster.topology.workers
    try:
        cluster.on_all(lambda one: cluster.machine(one).run("gpasswd --add vagrant mlnet"), workers)
        job = short_job(cluster, "unprivileged", user="vagrant")
    finally:
        cluster.on_all(lambda one: cluster.machine(one).run("gpasswd --delete vagrant mlnet"), workers)
    machine.run("systemctl kill --signal=KILL mlnetd")
    wait_until("systemd has started mlnetd again", lambda: machine.run("systemctl show -P NRestarts mlnetd").strip() != "0", 60)
    cluster.wait_until_ok(host)
    return {"exposure": exposure, "jobs": [job, short_job(cluster, "after-kill")]}


@scenario()
def reboot(cluster):
    """the aggregator loses its power in the middle of a job: its ranks, which require the kernel, end with an error that names it; the next job is right"""
    aggregator = cluster.topology.aggregators[0]
    job = endless_job(cluster, "cut-off")
    cluster.machine(aggregator).run("sync")  # its file system has no journal, and is not what is tried
    cluster.provider.reset(aggregator.name)
    codes = job.codes(180)
    require(all(code == 1 for code in codes), f"ranks ended with {codes}: {job.texts()}")
    for rank, text in enumerate(job.texts()):
        require(aggregator.name in text or aggregator.address in text, f"rank {rank} does not name {aggregator.name}: {text}")
    cluster.provider.wait_for(aggregator.name)
    cluster.wait_until_ok(aggregator)
    return {"errors": [text.splitlines()[-1] for text in job.texts()], "job": short_job(cluster, "after-reboot")}


def newer_packages(packages, folder):
    """The same packages as a later version. Made here: no machine has to work for it while a job runs."""
    folder.mkdir()
    for package in packages:
        tree = folder / "tree"
        subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
        control = tree / "DEBIAN" / "control"
        text = re.sub(r"^(Version: .*)$", r"\1+next", control.read_text(encoding="utf-8"), flags=re.M)
        control.write_text(re.sub(r"(libmlnet \(= [^)]*)\)", r"\1+next)", text), encoding="utf-8")
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, folder], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)
    return sorted(folder.glob("*.deb"))


@scenario()
def upgrade(cluster):
    """newer packages are installed, and the old ones again, under traffic: the daemons are restarted each time, the job goes on"""
    newer = cluster.folder / "newer"
    newer.mkdir()
    cluster.on_all(lambda host: cluster.machine(host).put("/tmp/newer", {deb.name: deb for deb in newer_packages(cluster.packages(host), newer / host.name)}))
    # One emulated processor unpacks packages, verifies programs and runs a rank; where all machines do so on two cores, 5 s without a packet were seen.
    cluster.machine(cluster.topology.workers[0]).run(f"mlnetctl job create under-upgrade --world-size {len(cluster.topology.workers)} --lost-ms 15000")
    job = endless_job(cluster, "under-upgrade")
    pids = cluster.on_all(lambda host: cluster.machine(host).run("systemctl show -P MainPID mlnetd"))

    def other_version(host):
        machine = cluster.machine(host)
        said = machine.run("export DEBIAN_FRONTEND=noninteractive; dpkg --install /tmp/newer/*.deb; dpkg-query -W mlnetd; ls -l /proc/$(pidof mlnetd)/exe")
        require("+next" in said and "(deleted)" not in said, f"{host.name}: not an upgrade that restarts the daemon: {said}")
        machine.run("dpkg --install --force-downgrade /opt/testbed/*.deb; rm -r /tmp/newer")

    cluster.on_all(other_version)
    report = finish_after("the upgrade", job)
    cluster.on_all(cluster.wait_until_ok)
    now = cluster.on_all(lambda host: cluster.machine(host).run("systemctl show -P MainPID mlnetd"))
    require(all(old != new for old, new in zip(pids, now)), f"not all daemons were restarted: {pids}, {now}")
    return {"jobs": [report, short_job(cluster, "after-upgrade")]}


@scenario()
def purge(cluster):
    """purged packages leave nothing: no file, no program on the NIC, no pin, no device; installed again, it works"""
    host = cluster.topology.workers[-1]
    machine = cluster.machine(host)
    machine.run("export DEBIAN_FRONTEND=noninteractive; dpkg --purge mlnet-tools libmlnet mlnetd")
    left = machine.run("find / -xdev -iname '*mlnet*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/opt/testbed/*' -not -path '/run/testbed/*'\n"
                       "ls -d /sys/fs/bpf/mlnet /run/mlnet /sys/class/net/mlnet* 2>/dev/null || true\n"
                       f"ip link show {NIC} | grep -o 'prog/xdp.*' || true; tc qdisc show dev {NIC} | grep clsact || true\n"
                       "systemctl list-unit-files | grep mlnet || true").split("\n")
    left = [line for line in left if line]
    cluster.install(host)
    require(not left, f"{host.name}: left behind: {left}")
    return {"job": short_job(cluster, "after-purge")}


@scenario("arm64")
def smartnic(cluster):
    """an arm64 aggregator, as on a SmartNIC, from its own package: right sums, bit for bit those that the x86 hosts make of the same numbers"""
    aggregator = cluster.topology.aggregators[0]
    machines = cluster.on_all(cluster.describe)
    for one in machines:
        require(one["machine"] == ("aarch64" if one["role"] == "aggregator" else "x86_64"), f"{one['name']} is {one['machine']}")
        require(one["driver"] == "virtio_net" and one["mode"] == "native", f"{one['name']}: {one['driver']} in {one['mode']} mode: {one['why']}")

    def summed_by(shape, dtype, count):
        name = f"{shape}-{dtype}"
        cluster.machine(cluster.topology.workers[0]).run(f"mlnetctl job create {name} --world-size {len(cluster.topology.workers)} --shape {shape}")
        before = cluster.verdicts(aggregator).get("SUM_FIRST", 0)
        job = Job(cluster, name, dtype, count)
        report = job.start().finish()
        return job.result.tobytes(), report, cluster.verdicts(aggregator).get("SUM_FIRST", 0) - before

    jobs = []
    for dtype, count in (("float32", 100_000), ("int32", 50_000), ("float64", 20_000)):
        there, report_there, packets_there = summed_by("star", dtype, count)
        here, report_here, packets_here = summed_by("workers", dtype, count)
        require(packets_there > 0 and packets_here == 0, f"{aggregator.name} summed {packets_there} and {packets_here} packets' sets, not some and none")
        require(there == here, f"{dtype}: arm64's sum has other bits than x86's")
        jobs += [report_there, report_here]
    return {"machines": machines, "jobs": jobs, "verdicts": cluster.verdicts(aggregator)}
