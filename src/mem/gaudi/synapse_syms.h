/* SPDX-License-Identifier: MIT */
/*
 * Every function of libSynapse.so that Penstock calls, in the form of hlthunk_syms.h.  All return a
 * syn_status.  synDestroy() is not called, because it ends objects that the program also uses.
 *
 * The formatter is off because it takes a type before a star for a factor.
 */
/* clang-format off */
SYM(syn_status, synInitialize, (void))
SYM(syn_status, synDeviceGetCount, (uint32_t *ret))
SYM(syn_status, synDeviceAcquire, (uint32_t *ret_id, const char *busid))
SYM(syn_status, synDeviceRelease, (uint32_t id))
SYM(syn_status, synDeviceGetInfoV2, (uint32_t id, struct syn_device_info *ret))
SYM(syn_status, synDeviceGetPCIBusId, (char *ret, int len, uint32_t id))
SYM(syn_status, synDeviceSynchronize, (uint32_t id))

SYM(syn_status, synDeviceMalloc,
    (uint32_t id, uint64_t size, uint64_t wish, uint32_t flags, uint64_t *ret))
SYM(syn_status, synDeviceFree, (uint32_t id, uint64_t va, uint32_t flags))
SYM(syn_status, synHostMap, (uint32_t id, uint64_t size, const void *host))
SYM(syn_status, synHostUnmap, (uint32_t id, const void *host))

SYM(syn_status, synStreamCreateGeneric, (syn_stream *ret, uint32_t id, uint32_t flags))
SYM(syn_status, synStreamDestroy, (syn_stream st))
SYM(syn_status, synStreamSynchronize, (syn_stream st))
SYM(syn_status, synMemCopyAsync,
    (syn_stream st, uint64_t src, uint64_t size, uint64_t dst, uint32_t dir))
SYM(syn_status, synEventCreate, (syn_event *ret, uint32_t id, uint32_t flags))
SYM(syn_status, synEventDestroy, (syn_event ev))
SYM(syn_status, synEventRecord, (syn_event ev, syn_stream st))
SYM(syn_status, synEventQuery, (syn_event ev))

#undef SYM
#undef OPT
