// Reduces random numbers of every type with every operation on four ranks, and prints a hash of each result:
//   bits PATH/librueda.so
// Builds of different compilers and architectures must print the same. Ranks are processes of this machine;
// they meet through files of a temporary folder.
#include <dlfcn.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "rueda/rueda.h"

namespace {

constexpr int kRanks = 4;

struct Library {
  decltype(&rueda_init) init;
  decltype(&rueda_shutdown) shutdown;
  decltype(&rueda_submit) submit;
  decltype(&rueda_wait) wait;
  decltype(&rueda_error) error;
  decltype(&rueda_last_error) last_error;
  decltype(&rueda_release) release;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "bits: %s\n", why.c_str());
  std::_Exit(1);
}

template <class F>
void find(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  if (function == nullptr) fail(std::string("no symbol ") + name);
}

Library load(const char* path) {
  void* const handle = dlopen(path, RTLD_NOW);
  if (handle == nullptr) fail(dlerror());
  Library library{};
  find(handle, "rueda_init", library.init);
  find(handle, "rueda_shutdown", library.shutdown);
  find(handle, "rueda_submit", library.submit);
  find(handle, "rueda_wait", library.wait);
  find(handle, "rueda_error", library.error);
  find(handle, "rueda_last_error", library.last_error);
  find(handle, "rueda_release", library.release);
  return library;
}

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

struct Type {
  rueda_dtype number;
  const char* name;
  size_t bytes;
  // Floats: finite numbers near 1 of both signs, because the bits of a NaN may depend on the processor.
  int mantissa_bits, exponent_bits;  // 0: an integer
};
constexpr Type kTypes[] = {
    {RUEDA_UINT8, "uint8", 1, 0, 0},       {RUEDA_INT8, "int8", 1, 0, 0},
    {RUEDA_UINT16, "uint16", 2, 0, 0},     {RUEDA_INT16, "int16", 2, 0, 0},
    {RUEDA_INT32, "int32", 4, 0, 0},       {RUEDA_INT64, "int64", 8, 0, 0},
    {RUEDA_FLOAT16, "float16", 2, 10, 5},  {RUEDA_FLOAT32, "float32", 4, 23, 8},
    {RUEDA_FLOAT64, "float64", 8, 52, 11}, {RUEDA_BFLOAT16, "bfloat16", 2, 7, 8},
};

void fill(const Type& type, Random& random, std::byte* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = random.next();
    if (type.exponent_bits > 0) {
      const uint64_t mantissa = bits & ((1ULL << type.mantissa_bits) - 1);
      const uint64_t bias = (1ULL << (type.exponent_bits - 1)) - 1;
      const uint64_t exponent = bias - 4 + ((bits >> 56) & 7);  // 2^-4 to 2^3
      const uint64_t sign = (bits >> 63) << (type.mantissa_bits + type.exponent_bits);
      bits = sign | (exponent << type.mantissa_bits) | mantissa;
    }
    std::memcpy(data + static_cast<size_t>(i) * type.bytes, &bits, type.bytes);  // little-endian
  }
}

uint64_t hash(const std::vector<std::byte>& data) {  // FNV-1a
  uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte byte : data) sum = (sum ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return sum;
}

struct Case {
  Type type;
  rueda_op op;
  const char* op_name;
  int64_t count;
  double prescale;
};

std::vector<Case> cases() {
  constexpr std::pair<rueda_op, const char*> kOps[] = {{RUEDA_AVERAGE, "average"}, {RUEDA_SUM, "sum"},
                                                       {RUEDA_MIN, "min"},         {RUEDA_MAX, "max"},
                                                       {RUEDA_PRODUCT, "product"}, {RUEDA_ADASUM, "adasum"}};
  std::vector<Case> all;
  for (const Type& type : kTypes)
    for (const auto& [op, name] : kOps)
      for (const int64_t count : {5, 1003, 70001}) {
        const bool is_float = type.exponent_bits > 0;
        if (op == RUEDA_ADASUM && !is_float) continue;
        const bool is_scaled = is_float && count == 1003 && (op == RUEDA_AVERAGE || op == RUEDA_SUM);
        all.push_back({type, op, name, count, is_scaled ? 0.3 : 1.0});
      }
  return all;
}

std::vector<std::byte> reduce(const Library& library, const Case& each, size_t number, int rank) {
  std::vector<std::byte> data(static_cast<size_t>(each.count) * each.type.bytes);
  Random random(number * 1000 + static_cast<uint64_t>(rank));
  fill(each.type, random, data.data(), each.count);
  const std::string name = "case." + std::to_string(number);
  rueda_request request{};
  request.struct_size = sizeof(request);
  request.what = RUEDA_ALLREDUCE;
  request.dtype = each.type.number;
  request.op = each.op;
  request.name = name.c_str();
  request.prescale = each.prescale;
  request.postscale = 1;
  request.ndim = 1;
  request.device = -1;
  request.shape = &each.count;
  request.input = request.output = data.data();
  int64_t handle = 0;
  if (library.submit(&request, 1, &handle) != RUEDA_OK) fail(library.last_error());
  if (library.wait(handle, 60) != RUEDA_OK) fail(library.error(handle));
  library.release(handle);
  return data;
}

int run_rank(const char* path, int rank, const std::string& folder, const char* transports) {
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("RUEDA_RANK", std::to_string(rank));
  set("RUEDA_SIZE", std::to_string(kRanks));
  set("RUEDA_LOCAL_RANK", std::to_string(rank));
  set("RUEDA_LOCAL_SIZE", std::to_string(kRanks));
  set("RUEDA_HOSTNAME", "here");
  set("RUEDA_JOB", "bits");
  set("RUEDA_STORE", "file://" + folder + "/store");
  set("RUEDA_SECRET_FILE", folder + "/secret");
  set("RUEDA_TRANSPORTS", transports);
  const Library library = load(path);
  if (library.init(nullptr) != RUEDA_OK) fail(library.last_error());
  size_t number = 0;
  for (const Case& each : cases()) {
    const uint64_t sum = hash(reduce(library, each, number++, rank));
    if (rank == 0)
      std::printf("%s %s %s %lld %016llx\n", transports, each.type.name, each.op_name,
                  static_cast<long long>(each.count), static_cast<unsigned long long>(sum));
  }
  library.shutdown();
  std::fflush(stdout);
  return 0;
}

void write_secret(const std::string& path) {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) fail("getrandom");
  const mode_t before = umask(0077);
  std::ofstream file(path);
  for (const unsigned char byte : bytes) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", byte);
    file << text;
  }
  umask(before);
}

int run_job(const char* path, const char* transports) {
  std::string pattern = (std::filesystem::temp_directory_path() / "rueda-bits-XXXXXX").string();
  const std::string folder = mkdtemp(pattern.data());
  write_secret(folder + "/secret");
  for (int rank = 0; rank < kRanks; ++rank)
    if (fork() == 0) std::_Exit(run_rank(path, rank, folder, transports));
  int status = 0, failed = 0;
  while (wait(&status) > 0) failed |= status;
  std::filesystem::remove_all(folder);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) fail("usage: bits PATH/librueda.so");
  return run_job(words[1], "shm") != 0 || run_job(words[1], "tcp") != 0 ? 1 : 0;
}
