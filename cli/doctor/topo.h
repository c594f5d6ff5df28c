/* SPDX-License-Identifier: MIT */
/*
 * penstock doctor --topo: accelerators, NICs and disks on the PCI bus, and the distances between
 * them.
 */
#ifndef CLI_DOCTOR_TOPO_H
#define CLI_DOCTOR_TOPO_H

#include <stdbool.h>
#include <stdio.h>

#define TOPO_DEVS_MAX 512u
#define TOPO_BRIDGES_MAX 32u /* bridges above one device */
#define TOPO_PCI_MAX 24u     /* "0000:17:00.0" with its NUL; a domain may have 8 digits */
#define TOPO_NAMES_MAX 4u    /* names kept per device */
#define TOPO_NAME_MAX 32u    /* bytes of a device's name, with the NUL */

enum topo_kind {
	TOPO_ACCEL,
	TOPO_NIC,
	TOPO_DISK,
	TOPO_KINDS,
};

/* Distances, nearest first, named as by nvidia-smi topo -m. */
enum topo_distance {
	TOPO_SELF, /* both devices are the same */
	TOPO_PIX,  /* at most one PCIe switch */
	TOPO_PXB,  /* several PCIe switches, but no host bridge */
	TOPO_PHB,  /* across the host bridge above both */
	TOPO_NODE, /* across two host bridges of one NUMA node */
	TOPO_SYS,  /* across NUMA nodes, or nodes are unknown */
	TOPO_DISTANCES,
};

struct topo_dev {
	enum topo_kind kind;
	unsigned num;           /* index among devices of its kind, from 0 */
	char pci[TOPO_PCI_MAX]; /* PCI address, such as "0000:17:00.0" */
	unsigned class, vendor, device;
	int node;                /* NUMA node; -1: unknown */
	char host[TOPO_PCI_MAX]; /* host bridge, such as "pci0000:16" */
	unsigned nr_bridges;     /* bridges from the host bridge down to the device */
	char bridges[TOPO_BRIDGES_MAX][TOPO_PCI_MAX];
	unsigned nr_names; /* number of names found; only TOPO_NAMES_MAX are in names[] */
	char names[TOPO_NAMES_MAX][TOPO_NAME_MAX];
	unsigned width, width_max; /* lanes of its PCIe link: current, maximum; 0: unknown */
	char speed[16];            /* highest speed, such as "32.0 GT/s"; "" if unknown */
};

struct topo {
	unsigned nr, of_kind[TOPO_KINDS];
	unsigned nodes; /* NUMA nodes of the machine; at least 1 */
	struct topo_dev devs[TOPO_DEVS_MAX];
};

/*
 * Find the devices below a sysfs, normally "/sys".  Sort them by kind, then by address.
 *
 * Return: 0; -errno with a sentence, -E2BIG for more than TOPO_DEVS_MAX.
 */
int topo_find(const char *sys, struct topo *ret);

enum topo_distance topo_distance(const struct topo *t, const struct topo_dev *a,
				 const struct topo_dev *b);

/* Return the distance of the nearest devices of a kind; TOPO_DISTANCES if there are none. */
enum topo_distance topo_nearest(const struct topo *t, const struct topo_dev *d,
				enum topo_kind kind);

const char *topo_distance_name(enum topo_distance d);
const char *topo_kind_name(enum topo_kind k);

/* Return the first name, or the address if there is none. */
const char *topo_name(const struct topo_dev *d);

/* Write a picture of the machine.  Return 0, or -errno with a sentence. */
int topo_svg(const struct topo *t, const char *path);

/* Print the report.  sys is "/sys", or a copy of another machine's; svg may be NULL. Return an exit
 * status. */
int doctor_topo(const char *sys, const char *svg, bool json);

#endif
