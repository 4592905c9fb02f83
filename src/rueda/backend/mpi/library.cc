#include "rueda/backend/mpi/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <type_traits>

#include "rueda/backend/mpi/functions.h"

namespace rueda::backend::mpi {
namespace {

constexpr size_t kVersionBytes = 8192;  // MPI_MAX_LIBRARY_VERSION_STRING of every library is at most this
constexpr size_t kErrorBytes = 512;     // MPI_MAX_ERROR_STRING likewise
constexpr int kSuccess = 0;

template <class H>
class Bound final : public Library {
 public:
  Bound(void* library, Flavor flavor, std::string path, std::string version, const Functions<H>& functions,
        const Abi& abi)
      : Library(flavor, std::move(path), std::move(version)), library_(library), mpi_(functions), abi_(abi) {}

  [[nodiscard]] bool is_initialized() override { return flag(mpi_.initialized); }
  [[nodiscard]] bool is_finalized() override { return flag(mpi_.finalized); }
  Result<ThreadLevel> init(ThreadLevel wanted) override {
    int granted = 0;
    const int code =
        mpi_.init_thread(nullptr, nullptr, abi_.thread_levels[static_cast<size_t>(wanted)], &granted);
    if (code != kSuccess) return fault("MPI_Init_thread", code);
    return level_of(granted);
  }
  [[nodiscard]] ThreadLevel thread_level() override {
    int level = 0;
    return mpi_.query_thread(&level) == kSuccess ? level_of(level) : ThreadLevel::kSingle;
  }
  Status finalize() override { return check("MPI_Finalize", mpi_.finalize()); }

  [[nodiscard]] Comm world() override { return {abi_.comm_world}; }
  Result<int> rank(Comm comm) override { return number("MPI_Comm_rank", mpi_.comm_rank, comm); }
  Result<int> size(Comm comm) override { return number("MPI_Comm_size", mpi_.comm_size, comm); }
  [[nodiscard]] bool is_congruent(Comm one, Comm other) override {
    int result = -1;
    if (mpi_.comm_compare(raw(one.handle), raw(other.handle), &result) != kSuccess) return false;
    return result == abi_.ident || result == abi_.congruent;
  }
  Status idup(Comm comm, Comm* copy, Request& request) override {
    // The library writes the new handle when the request completes, so it must be written where it stays.
    static_assert(std::is_trivially_copyable_v<H>);
    return post("MPI_Comm_idup", request,
                [&](H* ticket) { return mpi_.comm_idup(raw(comm.handle), place(copy), ticket); });
  }
  Result<Comm> create_group(Comm comm, std::span<const int> ranks, int tag) override {
    H all{}, some{}, made{};
    if (const int code = mpi_.comm_group(raw(comm.handle), &all); code != kSuccess)
      return fault("MPI_Comm_group", code);
    if (const int code = mpi_.group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some);
        code != kSuccess)
      return fault("MPI_Group_incl", code);
    const int code = mpi_.comm_create_group(raw(comm.handle), some, tag, &made);
    mpi_.group_free(&all);
    mpi_.group_free(&some);
    if (code != kSuccess) return fault("MPI_Comm_create_group", code);
    return Comm{cooked(made)};
  }
  void free(Comm comm) override {
    H handle = raw(comm.handle);
    mpi_.comm_free(&handle);
  }
  Status return_errors(Comm comm) override {
    return check("MPI_Comm_set_errhandler",
                 mpi_.comm_set_errhandler(raw(comm.handle), raw(abi_.errors_return)));
  }

  Result<bool> test(Request& request) override {
    H ticket = raw(request.handle);
    int is_done = 0;
    const int code = mpi_.test(&ticket, &is_done, reinterpret_cast<void*>(abi_.status_ignore));
    request.handle = cooked(ticket);
    if (code != kSuccess) return fault("MPI_Test", code);
    return is_done != 0;
  }
  Result<Op> make_op(ReduceFunction* function) override {
    H made{};
    const int code = mpi_.op_create(function, 1, &made);  // 1: the operands may be swapped
    if (code != kSuccess) return fault("MPI_Op_create", code);
    return Op{cooked(made)};
  }
  [[nodiscard]] Op builtin(BuiltinOp op) override { return {abi_.ops[static_cast<size_t>(op)]}; }

  Status iallreduce(void* in_out, int count, const Terms& terms, Request& request) override {
    return post("MPI_Iallreduce", request, [&](H* ticket) {
      return mpi_.iallreduce(reinterpret_cast<const void*>(abi_.in_place), in_out, count, raw(terms.type),
                             raw(terms.op.handle), raw(terms.comm.handle), ticket);
    });
  }
  Status ireduce(const void* in, void* out, int count, const Terms& terms, Request& request) override {
    return post("MPI_Ireduce", request, [&](H* ticket) {
      return mpi_.ireduce(in, out, count, raw(terms.type), raw(terms.op.handle), terms.peer,
                          raw(terms.comm.handle), ticket);
    });
  }
  Status ireduce_scatter(const void* in, void* out, const int* counts, const Terms& terms,
                         Request& request) override {
    return post("MPI_Ireduce_scatter", request, [&](H* ticket) {
      return mpi_.ireduce_scatter(in, out, counts, raw(terms.type), raw(terms.op.handle),
                                  raw(terms.comm.handle), ticket);
    });
  }
  Status iallgatherv(const void* in, int count, const OutParts& out, const Terms& terms,
                     Request& request) override {
    return post("MPI_Iallgatherv", request, [&](H* ticket) {
      return mpi_.iallgatherv(in, count, raw(terms.type), out.data, out.counts, out.begins, raw(terms.type),
                              raw(terms.comm.handle), ticket);
    });
  }
  Status ialltoallv(const InParts& in, const OutParts& out, const Terms& terms, Request& request) override {
    return post("MPI_Ialltoallv", request, [&](H* ticket) {
      return mpi_.ialltoallv(in.data, in.counts, in.begins, raw(terms.type), out.data, out.counts, out.begins,
                             raw(terms.type), raw(terms.comm.handle), ticket);
    });
  }
  Status ibcast(void* buffer, int count, const Terms& terms, Request& request) override {
    return post("MPI_Ibcast", request, [&](H* ticket) {
      return mpi_.ibcast(buffer, count, raw(terms.type), terms.peer, raw(terms.comm.handle), ticket);
    });
  }
  Status isend(const void* buffer, int count, const Terms& terms, Request& request) override {
    return post("MPI_Isend", request, [&](H* ticket) {
      return mpi_.isend(buffer, count, raw(terms.type), terms.peer, 0, raw(terms.comm.handle), ticket);
    });
  }
  Status irecv(void* buffer, int count, const Terms& terms, Request& request) override {
    return post("MPI_Irecv", request, [&](H* ticket) {
      return mpi_.irecv(buffer, count, raw(terms.type), terms.peer, 0, raw(terms.comm.handle), ticket);
    });
  }
  Status ibarrier(Comm comm, Request& request) override {
    return post("MPI_Ibarrier", request, [&](H* ticket) { return mpi_.ibarrier(raw(comm.handle), ticket); });
  }

  [[nodiscard]] bool takes_cuda_memory() override {
    // Of Open MPI, MVAPICH and MPICH 4. Libraries that know several kinds of devices have the second one.
    using QueryCuda = int();
    using QueryGpu = int(int kind, int* is_supported);
    const char* const enabled = std::getenv("MPIR_CVAR_ENABLE_GPU");  // of MPICH
    if (flavor() != Flavor::kOpenMpi && enabled != nullptr && std::atoi(enabled) == 0) return false;
    if (auto* const cuda = reinterpret_cast<QueryCuda*>(dlsym(library_, "MPIX_Query_cuda_support")))
      return cuda() == 1;
    auto* const gpu = reinterpret_cast<QueryGpu*>(dlsym(library_, "MPIX_GPU_query_support"));
    constexpr int kCuda = 0;  // MPIX_GPU_SUPPORT_CUDA
    int is_supported = 0;
    return gpu != nullptr && gpu(kCuda, &is_supported) == kSuccess && is_supported != 0;
  }
  Status allreduce(void* in_out, int count, const Terms& terms) override {
    return check("MPI_Allreduce",
                 mpi_.allreduce(reinterpret_cast<const void*>(abi_.in_place), in_out, count, raw(terms.type),
                                raw(terms.op.handle), raw(terms.comm.handle)));
  }
  Status reduce_scatter(const void* in, void* out, const int* counts, const Terms& terms) override {
    return check("MPI_Reduce_scatter", mpi_.reduce_scatter(in, out, counts, raw(terms.type),
                                                           raw(terms.op.handle), raw(terms.comm.handle)));
  }
  Status allgatherv(const void* in, int count, const OutParts& out, const Terms& terms) override {
    return check("MPI_Allgatherv", mpi_.allgatherv(in, count, raw(terms.type), out.data, out.counts,
                                                   out.begins, raw(terms.type), raw(terms.comm.handle)));
  }
  Status alltoallv(const InParts& in, const OutParts& out, const Terms& terms) override {
    return check("MPI_Alltoallv",
                 mpi_.alltoallv(in.data, in.counts, in.begins, raw(terms.type), out.data, out.counts,
                                out.begins, raw(terms.type), raw(terms.comm.handle)));
  }
  Status bcast(void* buffer, int count, const Terms& terms) override {
    return check("MPI_Bcast", mpi_.bcast(buffer, count, raw(terms.type), terms.peer, raw(terms.comm.handle)));
  }

 private:
  static H raw(Handle handle) {
    if constexpr (std::is_pointer_v<H>)
      return reinterpret_cast<H>(handle);
    else
      return static_cast<H>(handle);
  }
  [[nodiscard]] H raw(Type type) const { return raw(abi_.types[static_cast<size_t>(type)]); }
  static Handle cooked(H handle) {
    if constexpr (std::is_pointer_v<H>)
      return reinterpret_cast<Handle>(handle);
    else
      return static_cast<Handle>(static_cast<std::make_unsigned_t<H>>(handle));
  }
  // An int is the low half of the number on the machines that we support.
  static H* place(Comm* comm) {
    comm->handle = 0;
    return reinterpret_cast<H*>(&comm->handle);
  }
  static bool flag(int (*function)(int*)) {
    int value = 0;
    return function(&value) == kSuccess && value != 0;
  }
  [[nodiscard]] ThreadLevel level_of(int level) const {
    size_t known = 3;
    while (known > 0 && abi_.thread_levels[known] > level) --known;
    return static_cast<ThreadLevel>(known);
  }
  template <class Post>
  Status post(const char* name, Request& request, const Post& start) {
    H ticket = raw(abi_.request_null);
    const Status status = check(name, start(&ticket));
    request.handle = cooked(ticket);
    return status;
  }
  Result<int> number(const char* name, int (*function)(H, int*), Comm comm) {
    int value = -1;
    const int code = function(raw(comm.handle), &value);
    if (code != kSuccess) return fault(name, code);
    return value;
  }
  Status check(const char* name, int code) { return code == kSuccess ? Status::ok() : fault(name, code); }
  Status fault(const char* name, int code) {
    std::array<char, kErrorBytes> text{};
    int length = 0;
    const bool is_known = mpi_.error_string(code, text.data(), &length) == kSuccess;
    const std::string what = is_known ? std::string(text.data()) : "error " + std::to_string(code);
    return {Code::kUnavailable, std::string(name) + " of " + version() + " failed: " + what};
  }

  void* library_;  // of the loader
  Functions<H> mpi_;
  Abi abi_;
};

Status fill_from(void* library, Abi& abi) {
  const OpenMpiSymbols& names = open_mpi_symbols();
  std::string missing;
  const auto address = [&](std::string_view name) {
    void* const found = dlsym(library, std::string(name).c_str());
    if (found == nullptr) missing = name;
    return reinterpret_cast<Handle>(found);
  };
  abi.comm_world = address(names.comm_world);
  abi.request_null = address(names.request_null);
  abi.errors_return = address(names.errors_return);
  std::ranges::transform(names.types, abi.types.begin(), address);
  std::ranges::transform(names.ops, abi.ops.begin(), address);
  if (missing.empty()) return Status::ok();
  return {Code::kUnsupported, "this Open MPI has no symbol " + missing};
}

Status refused(const std::string& file, const std::string& why) {
  return {Code::kUnavailable, "the MPI library " + file + " cannot be used: " + why +
                                  "; set RUEDA_MPI_LIBRARY to libmpi.so of Open MPI, MPICH or Intel MPI."};
}

std::string path_of(void* function, const std::string& file) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
}

Result<Flavor> flavor_of(void* library, const std::string& path, const std::string& version) {
  if (path.substr(path.rfind('/') + 1).starts_with("libmpi_abi.so")) return Flavor::kStandard;
  if (dlsym(library, "ompi_mpi_comm_world") != nullptr) return Flavor::kOpenMpi;
  for (const char* name : {"MPICH", "Intel(R) MPI", "MVAPICH"})
    if (version.find(name) != std::string::npos) return Flavor::kMpich;
  return Status(Code::kUnsupported, "it is neither Open MPI nor of MPICH's family: '" + version + "'");
}

template <class H>
Result<std::unique_ptr<Library>> bind(void* library, Flavor flavor, std::string path, std::string version) {
  Functions<H> functions;
  Lookup find(library);
  look_up(find, functions);
  if (!find.missing().empty()) return refused(path, "it has no " + find.missing() + " (MPI 3.0 has it)");
  Abi abi = abi_of(flavor);
  const Status filled = flavor == Flavor::kOpenMpi ? fill_from(library, abi) : Status::ok();
  if (!filled.is_ok()) return refused(path, filled.why);
  return std::unique_ptr<Library>(
      std::make_unique<Bound<H>>(library, flavor, std::move(path), std::move(version), functions, abi));
}

}  // namespace

std::string short_version(const std::string& library_version) {
  std::string line = library_version.substr(0, library_version.find_first_of(",\n"));
  std::replace(line.begin(), line.end(), '\t', ' ');
  for (const std::string_view word : {" Version:", " Library", " for Linux* OS", "(R)"})
    if (const size_t at = line.find(word); at != std::string::npos) line.erase(at, word.size());
  for (size_t at = line.find("  "); at != std::string::npos; at = line.find("  ")) line.erase(at, 1);
  if (const size_t at = line.find(" v"); line.starts_with("Open MPI v") && at != std::string::npos)
    line.erase(at + 1, 1);
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

Result<std::unique_ptr<Library>> load_library(const std::string& file) {
  // Open MPI loads its parts itself, and they look for its symbols among the global ones.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = dlerror();
    return refused(file, why == nullptr ? "it cannot be loaded" : why);
  }
  using GetVersion = int(char*, int*);
  auto* const get_version = reinterpret_cast<GetVersion*>(dlsym(library, "MPI_Get_library_version"));
  if (get_version == nullptr) return refused(file, "it has no MPI_Get_library_version (MPI 3.0 has it)");
  std::string text(kVersionBytes, '\0');
  int length = 0;
  if (get_version(text.data(), &length) != kSuccess) return refused(file, "it does not tell its version");
  text.resize(text.find('\0') == std::string::npos ? text.size() : text.find('\0'));
  std::string path = path_of(reinterpret_cast<void*>(get_version), file);
  const Result<Flavor> flavor = flavor_of(library, path, text);
  if (!flavor.is_ok()) return refused(path, flavor.status().why);
  std::string version = short_version(text);
  return flavor.value() == Flavor::kMpich
             ? bind<int>(library, flavor.value(), std::move(path), std::move(version))
             : bind<void*>(library, flavor.value(), std::move(path), std::move(version));
}

}  // namespace rueda::backend::mpi
