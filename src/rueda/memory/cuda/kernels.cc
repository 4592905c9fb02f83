#include "rueda/memory/cuda/kernels.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "rueda/memory/cuda/deferred_frees.h"
#include "rueda/memory/cuda/device_kernels.h"
#include "rueda/memory/cuda/kernels_ptx.h"

namespace rueda::cuda {
namespace {

using device::TableEntry;

constexpr unsigned kThreads = 256;
// Enough blocks to keep the memory of the largest device busy; each goes on with further chunks.
constexpr uint64_t kMostBlocks = 2048;
constexpr size_t kElementsPerThread = 8;
// All kernels, to be found when their module is loaded. CUDA otherwise loads a kernel when it is first asked
// for, and may then wait for all that the device does: for other libraries' collectives, too, which may wait
// for a rank that waits for this one.
#define RUEDA_NAME(name, ...) #name,
constexpr const char* kNames[] = {RUEDA_KERNELS(RUEDA_NAME)};
#undef RUEDA_NAME
constexpr size_t kTables = 64;  // kept; a plan has fewer buckets than that in nearly all models

uint64_t hash_of(std::span<const TensorRun> runs) {
  uint64_t hash = runs.size();
  const auto mix = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  };
  for (const TensorRun& run : runs) {
    mix(reinterpret_cast<uint64_t>(run.tensor));
    mix(run.offset);
    mix(run.bytes);
  }
  return hash;
}

uint64_t chunks_of(const TensorRun& run, uint64_t chunk_bytes) {
  return (run.bytes + chunk_bytes - 1) / chunk_bytes;
}

}  // namespace

// A table of runs, on the host and on the device. The memory of the host stays as it is while the device may
// still copy it.
struct Table {
  uint64_t hash = 0;
  uint64_t chunk_bytes = 0;
  std::vector<TensorRun> runs;
  CUstream stream = nullptr;  // in whose order the table was copied
  uint32_t entries = 0;
  uint64_t chunks = 0;
  PinnedBuffer source;
  DeviceBuffer copy;  // empty if the device has no memory for it: it then reads the source
  std::unique_ptr<Event> used;
  uint64_t last_use = 0;

  [[nodiscard]] const std::byte* data() const { return copy.data() != nullptr ? copy.data() : source.data(); }
};

struct Kernels::State {
  explicit State(std::shared_ptr<const Device> of) : device(std::move(of)) {}
  ~State() {
    if (module == nullptr) return;
    const auto unload = [of = device, mine = module] {
      const ScopedContext current(*of);
      if (current.status().is_ok()) (void)of->driver().cuModuleUnload(mine);
    };
    if (!free_elsewhere(unload)) unload();
  }
  Result<CUfunction> find(const std::string& name);
  Status launch(Stream& stream, const std::string& name, uint64_t blocks, void** arguments);
  Status move(Stream& stream, const std::string& kernel, std::span<const TensorRun> runs,
              const std::byte* buffer, const Scale* scale);
  Result<Table*> table_of(Stream& stream, std::span<const TensorRun> runs, uint64_t chunk_bytes);
  Result<Table*> free_table();
  Status fill(Stream& stream, Table& table, std::span<const TensorRun> runs);

  std::shared_ptr<const Device> device;
  CUmodule module = nullptr;
  std::map<std::string, CUfunction> functions;
  std::vector<std::unique_ptr<Table>> tables;
  uint64_t uses = 0;
};

Kernels::Kernels(std::unique_ptr<State> state) : state_(std::move(state)) {}
Kernels::~Kernels() = default;

Result<std::unique_ptr<Kernels>> Kernels::load(std::shared_ptr<const Device> device) {
  auto state = std::make_unique<State>(std::move(device));
  const Driver& driver = state->device->driver();
  const ScopedContext current(*state->device);
  if (!current.status().is_ok()) return current.status();
  const Status loaded = driver.check(driver.cuModuleLoadData(&state->module, kKernelsPtx),
                                     "compile the kernels for " + state->device->name());
  if (!loaded.is_ok()) return loaded;
  for (const char* const name : kNames)
    if (const Result<CUfunction> found = state->find(name); !found.is_ok()) return found.status();
  return std::unique_ptr<Kernels>(new Kernels(std::move(state)));
}

Result<CUfunction> Kernels::State::find(const std::string& name) {
  if (const auto found = functions.find(name); found != functions.end()) return found->second;
  const Driver& driver = device->driver();
  const ScopedContext current(*device);
  if (!current.status().is_ok()) return current.status();
  CUfunction function = nullptr;
  const Status status =
      driver.check(driver.cuModuleGetFunction(&function, module, name.c_str()), "find kernel " + name);
  if (!status.is_ok()) return status;
  functions.emplace(name, function);
  return function;
}

Status Kernels::State::launch(Stream& stream, const std::string& name, uint64_t blocks, void** arguments) {
  const Result<CUfunction> function = find(name);
  if (!function.is_ok()) return function.status();
  const auto grid = static_cast<unsigned>(std::clamp<uint64_t>(blocks, 1, kMostBlocks));
  const Driver& driver = device->driver();
  const ScopedContext current(*device);
  if (!current.status().is_ok()) return current.status();
  const CUresult result = driver.cuLaunchKernel(function.value(), grid, 1, 1, kThreads, 1, 1, 0,
                                                stream.handle(), arguments, nullptr);
  return driver.check(result, "launch kernel " + name);
}

// A table that holds these runs for this stream, or one that nobody uses any more.
Result<Table*> Kernels::State::table_of(Stream& stream, std::span<const TensorRun> runs,
                                        uint64_t chunk_bytes) {
  const uint64_t hash = hash_of(runs);
  for (const auto& table : tables) {
    if (table->hash == hash && table->chunk_bytes == chunk_bytes && table->stream == stream.handle() &&
        std::ranges::equal(table->runs, runs)) {
      table->last_use = ++uses;
      return table.get();
    }
  }
  Result<Table*> table = free_table();
  if (!table.is_ok()) return table;
  table.value()->hash = hash;
  table.value()->chunk_bytes = chunk_bytes;
  table.value()->last_use = ++uses;
  if (const Status s = fill(stream, *table.value(), runs); !s.is_ok()) {
    table.value()->runs.clear();
    return s;
  }
  return table;
}

Result<Table*> Kernels::State::free_table() {
  if (tables.size() >= kTables) {
    const auto older = [](const auto& a, const auto& b) { return a->last_use < b->last_use; };
    Table* const oldest = std::ranges::min_element(tables, older)->get();
    if (oldest->used->outcome()) return oldest;
  }
  Result<std::unique_ptr<Event>> used = Event::create(device);
  if (!used.is_ok()) return used.status();
  tables.push_back(std::make_unique<Table>());
  tables.back()->used = std::move(used).value();
  return tables.back().get();
}

Status Kernels::State::fill(Stream& stream, Table& table, std::span<const TensorRun> runs) {
  table.runs.assign(runs.begin(), runs.end());
  table.stream = stream.handle();
  table.entries = 0;
  table.chunks = 0;
  for (const TensorRun& run : runs) {
    table.entries += run.bytes == 0 ? 0 : 1;
    table.chunks += chunks_of(run, table.chunk_bytes);
  }
  const size_t bytes = table.entries * sizeof(TableEntry) + table.chunks * sizeof(device::U32);
  if (bytes == 0) return Status::ok();
  if (table.source.bytes() < bytes) {
    Result<PinnedBuffer> source = PinnedBuffer::allocate(device, bytes);
    if (!source.is_ok()) return source.status();
    table.source = std::move(source).value();
    Result<DeviceBuffer> copy = DeviceBuffer::allocate(device, bytes);
    table.copy = copy.is_ok() ? std::move(copy).value() : DeviceBuffer();
  }
  auto* entry = reinterpret_cast<TableEntry*>(table.source.data());
  auto* const owners = reinterpret_cast<device::U32*>(entry + table.entries);
  uint64_t chunk = 0;
  for (device::U32 owner = 0; const TensorRun& run : runs) {
    if (run.bytes == 0) continue;
    *entry++ = {.tensor = reinterpret_cast<uint64_t>(run.tensor),
                .offset = run.offset,
                .bytes = run.bytes,
                .first_chunk = chunk};
    const uint64_t chunks = chunks_of(run, table.chunk_bytes);
    std::fill_n(owners + chunk, chunks, owner++);
    chunk += chunks;
  }
  if (table.copy.data() == nullptr) return Status::ok();
  return stream.copy(table.copy.data(), table.source.data(), bytes);
}

// scale: of a kernel that has one; otherwise null.
Status Kernels::State::move(Stream& stream, const std::string& kernel, std::span<const TensorRun> runs,
                            const std::byte* buffer, const Scale* scale) {
  const Result<Table*> found = table_of(stream, runs, device::kChunkBytes);
  if (!found.is_ok()) return found.status();
  Table& table = *found.value();
  if (table.entries == 0) return Status::ok();
  const std::byte* data = table.data();
  device::ScaleBy by{.factor = 1, .divisor = 1};
  if (scale != nullptr) by = {.factor = scale->factor, .divisor = scale->divisor};
  void* arguments[] = {&data, &table.entries, &table.chunks, &buffer, &by};
  if (const Status s = launch(stream, kernel, table.chunks, arguments); !s.is_ok()) return s;
  return stream.record(*table.used);
}

Status Kernels::pack(Stream& stream, std::span<const TensorRun> runs, std::byte* buffer) {
  return state_->move(stream, "rueda_pack", runs, buffer, nullptr);
}

Status Kernels::unpack(Stream& stream, std::span<const TensorRun> runs, const std::byte* buffer) {
  return state_->move(stream, "rueda_unpack", runs, buffer, nullptr);
}

Status Kernels::pack_scaled(Stream& stream, DType dtype, std::span<const TensorRun> runs, std::byte* buffer,
                            Scale scale) {
  RUEDA_CHECK(is_floating(dtype), "integers are scaled apart");
  return state_->move(stream, "rueda_pack_scaled_" + std::string(name_of(dtype)), runs, buffer, &scale);
}

Status Kernels::unpack_scaled(Stream& stream, DType dtype, std::span<const TensorRun> runs,
                              const std::byte* buffer, Scale scale) {
  RUEDA_CHECK(is_floating(dtype), "integers are scaled apart");
  return state_->move(stream, "rueda_unpack_scaled_" + std::string(name_of(dtype)), runs, buffer, &scale);
}

Status Kernels::scale(Stream& stream, DType dtype, const void* from, void* to, size_t count, Scale scale) {
  device::ScaleBy by{.factor = scale.factor, .divisor = scale.divisor};
  uint64_t elements = count;
  void* arguments[] = {&from, &to, &elements, &by};
  return state_->launch(stream, "rueda_scale_" + std::string(name_of(dtype)),
                        count / (kThreads * kElementsPerThread), arguments);
}

Status Kernels::add(Stream& stream, DType dtype, const void* one, const void* other, void* to, size_t count) {
  uint64_t elements = count;
  void* arguments[] = {&one, &other, &to, &elements};
  return state_->launch(stream, "rueda_add_" + std::string(name_of(dtype)),
                        count / (kThreads * kElementsPerThread), arguments);
}

Status Kernels::sum(Stream& stream, DType dtype, std::span<const void* const> sources, void* to, size_t count,
                    double prescale, Scale scale) {
  static_assert(kMostSummed == device::kMostSources);
  RUEDA_CHECK(!sources.empty() && sources.size() <= kMostSummed, "a sum has few sources");
  device::Sources of{.of = {}, .count = static_cast<uint32_t>(sources.size())};
  std::ranges::copy(sources, of.of);
  device::ScaleBy after{.factor = scale.factor, .divisor = scale.divisor};
  uint64_t elements = count;
  void* arguments[] = {&of, &to, &elements, &prescale, &after};
  return state_->launch(stream, "rueda_sum_" + std::string(name_of(dtype)),
                        count / (kThreads * kElementsPerThread), arguments);
}

size_t Kernels::adasum_bytes(std::span<const TensorRun> runs) {
  size_t chunks = 0;
  for (const TensorRun& run : runs) chunks += chunks_of(run, device::kDotBytes);
  return chunks * (kThreads + 1) * sizeof(device::Dots) + runs.size() * sizeof(device::Factors);
}

Status Kernels::adasum(Stream& stream, DType dtype, std::span<const TensorRun> runs, const std::byte* left,
                       const std::byte* right, std::byte* to, std::byte* scratch) {
  RUEDA_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat64, "Adasum combines accumulators");
  const Result<Table*> found = state_->table_of(stream, runs, device::kDotBytes);
  if (!found.is_ok()) return found.status();
  Table& table = *found.value();
  if (table.entries == 0) return Status::ok();
  const std::byte* data = table.data();
  uint64_t lanes = kThreads;
  auto* partial = reinterpret_cast<device::Dots*>(scratch);
  device::Dots* sums = partial + table.chunks * kThreads;
  auto* factors = reinterpret_cast<device::Factors*>(sums + table.chunks);
  void* dots[] = {&data, &table.entries, &table.chunks, &left, &right, &partial};
  void* fold[] = {&partial, &table.chunks, &lanes, &sums};
  void* weigh[] = {&data, &table.entries, &table.chunks, &sums, &factors};
  void* combine[] = {&data, &table.entries, &table.chunks, &factors, &left, &right, &to};
  const std::string type(name_of(dtype));
  Status status = state_->launch(stream, "rueda_dots_" + type, table.chunks, dots);
  if (status.is_ok())
    status = state_->launch(stream, "rueda_fold_dots", 3 * table.chunks / kThreads + 1, fold);
  if (status.is_ok())
    status = state_->launch(stream, "rueda_adasum_factors", table.entries / kThreads + 1, weigh);
  if (status.is_ok()) status = state_->launch(stream, "rueda_combine_" + type, table.chunks, combine);
  return status.is_ok() ? stream.record(*table.used) : status;
}

Status Kernels::cast(Stream& stream, DType from_type, const void* from, DType to_type, void* to,
                     size_t count) {
  RUEDA_CHECK((from_type == DType::kFloat32 && is_16bit_float(to_type)) ||
                  (to_type == DType::kFloat32 && is_16bit_float(from_type)),
              "casts are between float32 and a 16-bit float");
  uint64_t elements = count;
  void* arguments[] = {&from, &to, &elements};
  const std::string name =
      "rueda_cast_" + std::string(name_of(from_type)) + "_to_" + std::string(name_of(to_type));
  return state_->launch(stream, name, count / (kThreads * kElementsPerThread), arguments);
}

}  // namespace rueda::cuda
