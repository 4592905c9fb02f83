#include "bench/rank.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace rueda::bench {
namespace {

rueda_request request_of(const BenchOperation& operation, const int64_t* shape) {
  rueda_request request{};
  request.struct_size = sizeof request;
  request.what = operation.what;
  request.dtype = RUEDA_FLOAT32;
  request.op = RUEDA_SUM;
  request.name = operation.name;
  request.prescale = request.postscale = 1;
  request.ndim = 1;
  request.device = -1;
  request.shape = shape;
  request.input = operation.input;
  request.output = operation.output;
  request.splits = operation.splits.empty() ? nullptr : operation.splits.data();
  request.split_count = static_cast<int32_t>(operation.splits.size());
  request.priority = operation.priority;
  request.process_set = operation.process_set;
  request.wire = operation.wire;
  return request;
}

nlohmann::json facts_of(const Library& library) {
  return nlohmann::json::parse(library.describe(), nullptr, false);
}

}  // namespace

Result<std::unique_ptr<Rank>> Rank::join(const std::string& own_path, double wait_limit_s) {
  Result<Library> library = open_library(own_path);
  if (!library.is_ok()) return library.status();
  if (library.value().init(nullptr) != RUEDA_OK)
    return Status(Code::kUnavailable, library.value().last_error());
  return std::unique_ptr<Rank>(new Rank(std::move(library).value(), wait_limit_s));
}

std::string Rank::host() const {
  const nlohmann::json facts = facts_of(library_);
  return facts.is_object() ? facts.value("host", "unknown") : "unknown";
}

std::string Rank::transports() const {
  const nlohmann::json facts = facts_of(library_);
  std::set<std::string> names;
  if (facts.is_object() && facts.contains("peers"))
    for (const nlohmann::json& peer : facts["peers"])
      if (peer.value("rank", -1) != rank_) names.insert(peer.value("transport", "unknown"));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "+") + name;
  return text.empty() ? "none" : text;
}

int64_t Rank::round_trip_ns(int peer) const {
  const nlohmann::json facts = facts_of(library_);
  if (!facts.is_object() || !facts.contains("peers")) return 0;
  for (const nlohmann::json& one : facts["peers"])
    if (one.value("rank", -1) == peer) return std::llround(1e3 * one.value("round_trip_us", 0.0));
  return 0;
}

std::string Rank::algorithm() const {
  const nlohmann::json facts = facts_of(library_);
  return facts.is_object() ? facts.value("last_algorithm", "unknown") : "unknown";
}

std::string Rank::default_wire() const {
  const nlohmann::json facts = facts_of(library_);
  return facts.is_object() && facts.contains("wire") ? facts["wire"].value("default", "float32") : "float32";
}

std::optional<rueda_wire> Rank::find_wire(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, rueda_wire>, 4> kNames = {{{"float32", RUEDA_WIRE_FLOAT32},
                                                                              {"bf16", RUEDA_WIRE_BF16},
                                                                              {"fp16", RUEDA_WIRE_FP16},
                                                                              {"int8", RUEDA_WIRE_INT8}}};
  for (const auto& [known, wire] : kNames)
    if (known == name) return wire;
  return std::nullopt;
}

int64_t Rank::negotiation_messages() const {
  const nlohmann::json facts = facts_of(library_);
  if (!facts.is_object() || !facts.contains("counters")) return 0;
  return facts["counters"].value("negotiation_messages", int64_t{0});
}

Status Rank::failure(int64_t handle, int code) const {
  return {static_cast<Code>(code),
          code == RUEDA_TIMEOUT
              ? fmt::format("rank {} waited {} s for an operation; set RUEDA_LOG_LEVEL=debug to see which",
                            rank_, wait_limit_s_)
              : library_.error(handle)};
}

Result<int64_t> Rank::submit(const BenchOperation& operation) {
  const rueda_request request = request_of(operation, &operation.count);
  int64_t handle = 0;
  const int code = library_.submit(&request, 1, &handle);
  if (code != RUEDA_OK) return Status(static_cast<Code>(code), library_.last_error());
  return handle;
}

Result<int64_t> Rank::submit_group(std::span<const BenchOperation> operations) {
  std::vector<rueda_request> requests;
  for (const BenchOperation& operation : operations)
    requests.push_back(request_of(operation, &operation.count));
  int64_t handle = 0;
  const int code = library_.submit(requests.data(), static_cast<int32_t>(requests.size()), &handle);
  if (code != RUEDA_OK) return Status(static_cast<Code>(code), library_.last_error());
  return handle;
}

Status Rank::finish(int64_t handle) {
  const int code = library_.wait(handle, wait_limit_s_);
  Status status = code == RUEDA_OK ? Status::ok() : failure(handle, code);
  library_.release(handle);
  return status;
}

Status Rank::run(const BenchOperation& operation) {
  const rueda_request request = request_of(operation, &operation.count);
  int64_t handle = 0;
  const int code = library_.submit_for_wait(&request, 1, &handle);
  return code == RUEDA_OK ? finish(handle) : Status(static_cast<Code>(code), library_.last_error());
}

Result<std::span<const float>> Rank::output_of(int64_t handle) const {
  rueda_result_info info{};
  info.struct_size = sizeof info;
  const int code = library_.result(handle, 0, &info);
  if (code != RUEDA_OK) return Status(static_cast<Code>(code), library_.error(handle));
  return std::span(static_cast<const float*>(info.data), info.bytes / sizeof(float));
}

Status Rank::barrier(const char* name, int32_t process_set) {
  rueda_request request =
      request_of({.what = RUEDA_BARRIER, .name = name, .process_set = process_set}, nullptr);
  request.ndim = 0;
  int64_t handle = 0;
  const int code = library_.submit_for_wait(&request, 1, &handle);
  if (code != RUEDA_OK) return {static_cast<Code>(code), library_.last_error()};
  return finish(handle);
}

Result<std::string> Rank::gather_bytes(rueda_request request) {
  const std::string name = fmt::format("bench.gather.{}", gathers_++);
  request.name = name.c_str();
  int64_t handle = 0;
  int code = library_.submit_for_wait(&request, 1, &handle);
  if (code != RUEDA_OK) return Status(static_cast<Code>(code), library_.last_error());
  code = library_.wait(handle, wait_limit_s_);
  rueda_result_info info{};
  info.struct_size = sizeof info;
  if (code == RUEDA_OK) code = library_.result(handle, 0, &info);
  const Status status = code == RUEDA_OK ? Status::ok() : failure(handle, code);
  std::string all;
  if (status.is_ok() && info.bytes > 0) all.assign(static_cast<const char*>(info.data), info.bytes);
  library_.release(handle);
  if (!status.is_ok()) return status;
  return all;
}

Result<std::vector<int64_t>> Rank::gather(std::span<const int64_t> numbers, const ProcessSet& set) {
  const auto count = static_cast<int64_t>(numbers.size());
  rueda_request request = request_of({.what = RUEDA_ALLGATHER, .name = "", .process_set = set.id}, &count);
  request.dtype = RUEDA_INT64;
  request.input = numbers.data();
  const Result<std::string> bytes = gather_bytes(request);
  if (!bytes.is_ok()) return bytes.status();
  std::vector<int64_t> all(numbers.size() * static_cast<size_t>(set.size));
  if (bytes.value().size() != all.size() * sizeof(int64_t))
    return Status(Code::kInternal,
                  "the ranks reported different numbers of times; run the same command on all ranks");
  std::memcpy(all.data(), bytes.value().data(), bytes.value().size());
  return all;
}

Result<std::string> Rank::gather_text(std::string_view text) {
  const auto count = static_cast<int64_t>(text.size());
  rueda_request request = request_of({.what = RUEDA_ALLGATHER, .name = ""}, &count);
  request.dtype = RUEDA_UINT8;
  request.input = text.data();
  return gather_bytes(request);
}

Result<ProcessSet> Rank::add_process_set(std::span<const int32_t> ranks) {
  ProcessSet set{.id = 0, .size = static_cast<int>(ranks.size())};
  if (set.size == size_) return set;
  const int code = library_.add_process_set(ranks.data(), set.size, &set.id);
  if (code != RUEDA_OK) return Status(static_cast<Code>(code), library_.last_error());
  return set;
}

Result<bool> Rank::all_agree(bool claim) {
  const int64_t mine = claim ? 1 : 0;
  const Result<std::vector<int64_t>> all = gather(std::span(&mine, 1));
  if (!all.is_ok()) return all.status();
  for (const int64_t one : all.value())
    if (one == 0) return false;
  return true;
}

Result<Buffer> Buffer::make(const Library& library, std::string_view kind, int64_t count) {
  Buffer buffer;
  const size_t bytes = sizeof(float) * static_cast<size_t>(std::max<int64_t>(count, 1));
  void* memory = nullptr;
  if (kind == "shared") {
    memory = library.alloc(bytes);
    if (memory == nullptr) return Status(Code::kUnavailable, library.last_error());
    buffer.release_shared_ = library.release_memory;
  } else {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return Status(Code::kUnavailable,
                    fmt::format("cannot allocate a buffer of {} bytes; measure smaller sizes", bytes));
  }
  std::memset(memory, 0, bytes);
  buffer.values_ = {static_cast<float*>(memory), static_cast<size_t>(count)};
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : release_shared_(other.release_shared_), values_(std::exchange(other.values_, {})) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(release_shared_, other.release_shared_);
  std::swap(values_, other.values_);
  return *this;
}

Buffer::~Buffer() {
  if (values_.data() == nullptr) return;
  if (release_shared_ != nullptr)
    release_shared_(values_.data());
  else
    munmap(values_.data(), std::max(values_.size_bytes(), sizeof(float)));
}

}  // namespace rueda::bench
