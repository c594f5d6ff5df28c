# SPDX-License-Identifier: MIT
"""Print results as text."""

TEXT_MAX = 200  # characters of a loader's error message
HEAD = (f"{'':24}{'new process':>19} {'warmed up':>19} {'CPU s/10 GB':>12} {'host MiB':>12} "
        f"{'start':>6}  path")


def rate(spread, length):
    """Write GB/s: the median, then the lowest and the highest."""
    if not spread:
        return ""
    lowest, highest = (length / spread[key] / 1e9 for key in ("highest_s", "lowest_s"))
    return f"{spread['gb_per_s']:.2f} ({lowest:.2f}-{highest:.2f})"


def line(row, length):
    name = ("* " if row["ours"] else "  ") + row["loader"]
    if row["status"] != "done":
        return f"{name:<24} {row['status']}: {row['text'][:TEXT_MAX]}"
    new, warm = row["new"], row["warm"]
    cpu = f"{new['cpu_s_per_10gb']:.2f}" + (f" {warm['cpu_s_per_10gb']:5.2f}" if warm else "")
    host = " ".join(f"{spread['host_bytes'] / 2**20:.0f}" for spread in (new, warm)
                    if spread and spread["host_bytes"] is not None)
    return (f"{name:<24}{rate(new, length):>19} {rate(warm, length):>19} {cpu:>12} {host:>12} "
            f"{row['start_s']:6.2f}  {row['path']}").rstrip()


def rounds_of(settings):
    if settings["rounds_done"] < settings["rounds"]:
        return f"stopped behind {settings['rounds_done']} of {settings['rounds']} rounds"
    return f"{settings['rounds']} rounds"


def head(report):
    machine, model = report["machine"], report["model"]
    gpu = machine["device"] + (f", driver {machine['nvidia_driver']}"
                               if machine["nvidia_driver"] else "")
    settings = report["settings"]
    return [f"machine   {machine['processor']}, {machine['cpus']} processors, "
            f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['kernel']}",
            f"device    {report['device']}: {gpu}",
            f"model     {model['bytes'] / 1e9:.3f} GB, {model['tensors']} tensors in "
            f"{len(model['files'])} files, {model['file_system']}",
            f"measured  {rounds_of(settings)}, {settings['loads']} loads in each process; "
            "medians, and lowest-highest; * is ours",
            "versions  " + ", ".join(f"{name} {version}" for name, version
                                     in sorted(report["versions"].items()))]


def groups(rows):
    """Group the rows by state, in the order of first appearance."""
    found = {}
    for row in rows:
        found.setdefault(row["state"], []).append(row)
    return found


ABOUT = {"memory": "memory: the page cache holds the files before each load",
         "disk": "disk: the page cache holds nothing of the files before each load"}


def absent(items):
    """Write a line per reason, with what to install."""
    reasons = {}
    for item in items:
        cure = f"; {item['install']}" if item["install"] else ""
        reasons.setdefault(item["text"] + cure, []).append(item["loader"])
    return [f"absent    {', '.join(names)}: {reason}" for reason, names in reasons.items()]


def text(report):
    lines, length = head(report), report["model"]["bytes"]
    for state, rows in groups(report["rows"]).items():
        about = ABOUT.get(state, f"{state}: {rows[0]['state_text']}")
        lines += ["", about + "; GB/s", HEAD]
        lines += [line(row, length) for row in rows]
    if report["left_out"] or report["absent"]:
        lines.append("")
    lines += [f"left out  {item['state']}: {item['text']}" for item in report["left_out"]]
    return "\n".join(lines + absent(report["absent"]))
