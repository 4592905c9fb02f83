// The part of the C ABI that carries residuals of wire types to another epoch.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "rueda/base/log.h"
#include "rueda/capi/state.h"
#include "rueda/rueda.h"
#include "rueda/runtime/engine.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::capi {
namespace {

// FNV-1a over the members, their hosts, and this rank.
uint64_t placement_of(const runtime::Engine& engine, int32_t process_set) {
  const auto group = engine.groups().find(process_set);
  if (!group) return 0;
  uint64_t hash = 14695981039346656037U;
  const auto mix = [&hash](int32_t value) { hash = (hash ^ static_cast<uint32_t>(value)) * 1099511628211U; };
  for (const Rank member : group->members) mix(member);
  for (const int32_t host : runtime::topology_of(group->members, *engine.session().all).host_of) mix(host);
  mix(engine.session().me);
  return hash == 0 ? 1 : hash;
}

runtime::Placements placements_of(const runtime::Engine& engine) {
  return [&engine](int32_t process_set) { return placement_of(engine, process_set); };
}

Status check_quiet(runtime::Engine& engine, const char* what) {
  const bool may_change = engine.submissions().residuals().bytes() > 0;
  if (!may_change || engine.operations().is_empty()) return Status::ok();
  return {Code::kInvalidArgument, std::string(what) +
                                      ": operations are in flight, so residuals may still change; wait for "
                                      "them, as between two steps of training."};
}

}  // namespace
}  // namespace rueda::capi

namespace capi = rueda::capi;

extern "C" {

int64_t rueda_save_residuals(int32_t process_set, const char* const* names, int32_t count, void* out,
                             int64_t size) {
  const std::shared_ptr<rueda::runtime::Engine> engine = capi::engine();
  if (!engine) return -static_cast<int64_t>(capi::fail_not_initialized());
  if (const rueda::Status s = capi::check_quiet(*engine, "rueda_save_residuals"); !s.is_ok())
    return -static_cast<int64_t>(capi::fail(s));
  rueda::runtime::ResidualStore::Wanted wanted{
      .process_set = process_set, .names = {}, .is_all = names == nullptr};
  if (names != nullptr) wanted.names.assign(names, names + count);
  const rueda::Bytes saved = engine->submissions().residuals().save(wanted, capi::placements_of(*engine));
  if (out != nullptr && size > 0)
    std::memcpy(out, saved.data(), std::min(saved.size(), static_cast<size_t>(size)));
  return static_cast<int64_t>(saved.size());
}

int rueda_load_residuals(const void* data, int64_t size) {
  const std::shared_ptr<rueda::runtime::Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (const rueda::Status s = capi::check_quiet(*engine, "rueda_load_residuals"); !s.is_ok())
    return capi::fail(s);
  const std::span bytes(static_cast<const std::byte*>(data), data == nullptr ? 0 : static_cast<size_t>(size));
  const auto done = engine->submissions().residuals().restore(bytes, capi::placements_of(*engine));
  if (!done.is_ok()) return capi::fail({done.status().code, "rueda_load_residuals: " + done.status().why});
  if (done.value().dropped > 0)
    RUEDA_LOG(kWarning,
              "what encoding had left to be sent of " + std::to_string(done.value().dropped) +
                  " tensors was dropped, because it was saved with other ranks or hosts, on another rank, or "
                  "of tensors of another size");
  return RUEDA_OK;
}

}  // extern "C"
