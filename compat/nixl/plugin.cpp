/* SPDX-License-Identifier: MIT */
/*
 * NIXL's plug-in interface: C++ classes, translated to the calls of plug.h.
 *
 * No exception leaves a method, because NIXL does not expect any.
 */
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "backend/backend_engine.h"
#include "backend/backend_plugin.h"

#include <penstock.h>

#include "plug.h"

namespace
{

struct region_md : nixlBackendMD {
	explicit region_md(plug_region *r) : nixlBackendMD(true), region(r)
	{
	}
	plug_region *region;
};

struct req_handle : nixlBackendReqH {
	explicit req_handle(plug_req *r) : req(r)
	{
	}
	plug_req *req;
};

/* Return NIXL's status for a result of plug.h. */
nixl_status_t status_of(int result)
{
	switch (result) {
	case 1:
		return NIXL_IN_PROG;
	case 0:
		return NIXL_SUCCESS;
	case -EINVAL:
	case -ERANGE:
	case -EOVERFLOW:
	case -EFAULT:
	case -E2BIG:
	case -EBADF:
	case -EEXIST:
		return NIXL_ERR_INVALID_PARAM;
	case -ENOENT:
	case -ENODEV:
		return NIXL_ERR_NOT_FOUND;
	case -EACCES:
	case -EPERM:
	case -EROFS:
	case -EBUSY:
		return NIXL_ERR_NOT_ALLOWED;
	case -EALREADY:
		return NIXL_ERR_REPOST_ACTIVE;
	case -EOPNOTSUPP:
	case -EPROTONOSUPPORT:
		return NIXL_ERR_NOT_SUPPORTED;
	case -ECANCELED:
		return NIXL_ERR_CANCELED;
	case -ENOTCONN:
		return NIXL_ERR_NOT_POSTED;
	default:
		return NIXL_ERR_BACKEND;
	}
}

/* Run a method's body.  An allocation of a standard container may fail in it. */
template <typename F> nixl_status_t guarded(F &&body)
{
	try {
		return body();
	} catch (const std::exception &e) {
		plug_log("a call failed: %s", e.what());
		return NIXL_ERR_BACKEND;
	}
}

std::vector<plug_range> ranges_of(const nixl_meta_dlist_t &list)
{
	std::vector<plug_range> ranges;

	ranges.reserve(static_cast<size_t>(list.descCount()));
	for (const nixlMetaDesc &desc : list) {
		auto *md = static_cast<region_md *>(desc.metadataP);

		ranges.push_back({ desc.addr, desc.len, md ? md->region : nullptr });
	}
	return ranges;
}

/* Return the path that a descriptor's metadata names, with or without modes. */
std::string path_of(const std::string &meta)
{
	size_t colon = meta.find(':');

	if (colon != std::string::npos && (meta.rfind("ro", 0) == 0 || meta.rfind("rw", 0) == 0) &&
	    (meta[2] == ':' || meta[2] == ','))
		return meta.substr(colon + 1);
	return meta;
}

class penstock_engine : public nixlBackendEngine
{
      public:
	explicit penstock_engine(const nixlBackendInitParams *init) : nixlBackendEngine(init)
	{
		std::vector<plug_param> params;

		for (const auto &[name, value] : getCustomParams())
			params.push_back({ name.c_str(), value.c_str() });
		initErr = plug_engine_new(params.data(), params.size(), &engine) < 0;
	}

	~penstock_engine() override
	{
		plug_engine_free(engine);
	}

	bool supportsRemote() const override
	{
		return false;
	}

	bool supportsLocal() const override
	{
		return true;
	}

	bool supportsNotif() const override
	{
		return false;
	}

	nixl_mem_list_t getSupportedMems() const override
	{
		return { FILE_SEG, DRAM_SEG, VRAM_SEG };
	}

	nixl_status_t registerMem(const nixlBlobDesc &mem, const nixl_mem_t &type,
				  nixlBackendMD *&out) override
	{
		return guarded([&] {
			plug_kind kind = type == FILE_SEG   ? PLUG_FILE
					 : type == DRAM_SEG ? PLUG_HOST
							    : PLUG_DEVICE;
			plug_region *region;
			int err;

			out = nullptr;
			if (type != FILE_SEG && type != DRAM_SEG && type != VRAM_SEG)
				return NIXL_ERR_NOT_SUPPORTED;
			auto md = std::make_unique<region_md>(nullptr);
			err = plug_region_new(engine, kind, mem.addr, mem.len, mem.devId,
					      mem.metaInfo.data(), mem.metaInfo.size(), &region);
			if (err)
				return status_of(err);
			md->region = region;
			out = md.release();
			return NIXL_SUCCESS;
		});
	}

	nixl_status_t deregisterMem(nixlBackendMD *meta) override
	{
		auto *md = static_cast<region_md *>(meta);
		int err;

		if (!md)
			return NIXL_ERR_INVALID_PARAM;
		err = plug_region_free(engine, md->region);
		delete md;
		return status_of(err);
	}

	nixl_status_t connect(const std::string &) override
	{
		return NIXL_SUCCESS;
	}

	nixl_status_t disconnect(const std::string &) override
	{
		return NIXL_SUCCESS;
	}

	nixl_status_t unloadMD(nixlBackendMD *) override
	{
		return NIXL_SUCCESS;
	}

	nixl_status_t loadLocalMD(nixlBackendMD *input, nixlBackendMD *&output) override
	{
		output = input;
		return NIXL_SUCCESS;
	}

	nixl_status_t prepXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &agent,
			       nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const override
	{
		return guarded([&] {
			plug_req *req;
			int err;

			if (!lists_ok(local, remote, agent))
				return NIXL_ERR_INVALID_PARAM;
			std::vector<plug_range> mem = ranges_of(local), file = ranges_of(remote);
			auto made = std::make_unique<req_handle>(nullptr);
			err = plug_req_new(engine, op == NIXL_WRITE, mem.data(), file.data(),
					   mem.size(), &req);
			if (err)
				return status_of(err);
			made->req = req;
			handle = made.release();
			return NIXL_SUCCESS;
		});
	}

	nixl_status_t postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &,
			       const nixl_meta_dlist_t &, const std::string &,
			       nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const override
	{
		if (!handle)
			return NIXL_ERR_INVALID_PARAM;
		return status_of(plug_req_post(engine, static_cast<req_handle *>(handle)->req));
	}

	nixl_status_t checkXfer(nixlBackendReqH *handle) const override
	{
		if (!handle)
			return NIXL_ERR_INVALID_PARAM;
		return status_of(plug_req_check(static_cast<req_handle *>(handle)->req));
	}

	nixl_status_t releaseReqH(nixlBackendReqH *handle) const override
	{
		int err;

		if (!handle)
			return NIXL_ERR_INVALID_PARAM;
		err = plug_req_free(engine, static_cast<req_handle *>(handle)->req);
		if (err)
			return status_of(err);
		delete handle;
		return NIXL_SUCCESS;
	}

	nixl_status_t queryMem(const nixl_reg_dlist_t &descs,
			       std::vector<nixl_query_resp_t> &resp) const override
	{
		return guarded([&] {
			resp.clear();
			for (const nixlBlobDesc &desc : descs)
				resp.push_back(file_query(path_of(desc.metaInfo)));
			return NIXL_SUCCESS;
		});
	}

      private:
	bool lists_ok(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
		      const std::string &agent) const
	{
		if (agent != localAgent) {
			plug_log("the transfer is for another agent: files belong to the agent "
				 "that registered them");
			return false;
		}
		if (remote.getType() != FILE_SEG ||
		    (local.getType() != DRAM_SEG && local.getType() != VRAM_SEG)) {
			plug_log("a transfer is between local DRAM or VRAM and a remote FILE: "
				 "give the lists in this order");
			return false;
		}
		if (local.descCount() != remote.descCount()) {
			plug_log("the lists have %d and %d descriptors: make them equal",
				 local.descCount(), remote.descCount());
			return false;
		}
		return true;
	}

	/* Describe a file as NIXL's own plug-ins do, or nothing if there is none. */
	static nixl_query_resp_t file_query(const std::string &path)
	{
		pst_name_info info = {};
		struct stat st;

		if (path.empty())
			return std::nullopt;
		if (stat(path.c_str(), &st) == 0)
			return nixl_b_params_t{ { "size", std::to_string(st.st_size) },
						{ "mode", std::to_string(st.st_mode) },
						{ "mtime", std::to_string(st.st_mtime) } };
		info.sz = sizeof(info);
		if (pst_name_stat(path.c_str(), &info) < 0)
			return std::nullopt;
		return nixl_b_params_t{ { "size", std::to_string(info.size) },
					{ "mtime", std::to_string(info.mtime_ns / 1000000000) } };
	}

	plug_engine *engine = nullptr;
};

using creator = nixlBackendPluginCreator<penstock_engine>;

} // namespace

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init()
{
	nixl_b_params_t defaults;

	if (!plug_version_ok())
		return nullptr;
	for (const plug_param *p = plug_defaults; p->name; p++)
		defaults[p->name] = p->value;
	return creator::create(NIXL_PLUGIN_API_VERSION, "PENSTOCK", pst_version(), defaults,
			       { FILE_SEG, DRAM_SEG, VRAM_SEG });
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini()
{
}
