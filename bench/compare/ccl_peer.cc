// Allreduce of oneCCL, measured as `rueda bench` measures; the same lines as mpi_peer.c. One process a rank:
//   ccl_peer OUT RANK SIZE BYTES:CALLS...
// The ranks meet through OUT.address, which rank 0 writes. Schedules are cached by a match id, as its manual
// advises for repeated collectives.
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <oneapi/ccl.hpp>
#include <string>
#include <vector>

namespace {

constexpr int kWarmUps = 4;

int64_t now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

ccl::shared_ptr_class<ccl::kvs> meet(const std::string& path, int rank) {
  if (rank == 0) {
    auto kvs = ccl::create_main_kvs();
    const auto address = kvs->get_address();
    std::ofstream(path + ".part", std::ios::binary)
        .write(address.data(), static_cast<std::streamsize>(address.size()));
    std::rename((path + ".part").c_str(), path.c_str());
    return kvs;
  }
  ccl::kvs::address_type address;
  for (int tries = 0; tries < 30'000; ++tries, usleep(1000)) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(address.data(), static_cast<std::streamsize>(address.size())))
      return ccl::create_kvs(address);
  }
  std::fprintf(stderr, "ccl_peer: rank 0 did not appear in time\n");
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string out = argv[1];
  const int rank = std::atoi(argv[2]), size = std::atoi(argv[3]);
  setenv("CCL_LOCAL_RANK", argv[2], 1);
  setenv("CCL_LOCAL_SIZE", argv[3], 1);
  setenv("CCL_PROCESS_LAUNCHER", "none", 1);
  if (size <= sysconf(_SC_NPROCESSORS_ONLN)) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(static_cast<size_t>(rank), &own);
    sched_setaffinity(0, sizeof own, &own);
  }
  ccl::init();
  auto comm = ccl::create_communicator(size, rank, meet(out + ".address", rank));
  std::FILE* file = std::fopen((out + "." + std::to_string(rank)).c_str(), "w");
  for (int i = 4; i < argc; ++i) {
    const auto count = static_cast<size_t>(std::atoll(argv[i])) / 4;
    const int calls = std::atoi(std::strchr(argv[i], ':') + 1);
    std::vector<float> values(count);
    auto how = ccl::create_operation_attr<ccl::allreduce_attr>();
    how.set<ccl::operation_attr_id::to_cache>(true);
    how.set<ccl::operation_attr_id::match_id>(ccl::string_class("n" + std::to_string(count)));
    for (int call = 0; call < kWarmUps + calls; ++call) {
      for (size_t j = 0; j < count; ++j)
        values[j] = static_cast<float>((j + static_cast<size_t>(call)) % 64 + static_cast<size_t>(rank));
      ccl::barrier(comm).wait();
      const int64_t start = now();
      ccl::allreduce(values.data(), values.data(), count, ccl::datatype::float32, ccl::reduction::sum, comm,
                     how)
          .wait();
      const int64_t end = now();
      ccl::barrier(comm).wait();  // the check would take the cores from ranks that have not finished
      for (size_t j = 0; j < count; ++j) {
        const auto part =
            static_cast<float>((j + static_cast<size_t>(call)) % 64 * static_cast<size_t>(size));
        if (values[j] != part + static_cast<float>(size * (size - 1) / 2)) {
          std::fprintf(stderr, "ccl_peer: a sum is wrong\n");
          return 1;
        }
      }
      if (call >= kWarmUps)
        std::fprintf(file, "%lld %lld %lld\n", static_cast<long long>(count * 4),
                     static_cast<long long>(start), static_cast<long long>(end));
    }
  }
  std::fclose(file);
  ccl::barrier(comm).wait();
  std::_Exit(0);  // without shutting down the threads of oneCCL
}
