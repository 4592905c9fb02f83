#include "plugins/torch/c10.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

namespace rueda::torch {
namespace {

constexpr const char* kAllocatorTable = "_ZTVN3c109AllocatorE";
constexpr const char* kDefaultTable = "_ZTVN3c1019DefaultCPUAllocatorE";
constexpr const char* kIsSimple = "_ZNK3c109Allocator18is_simple_data_ptrERKNS_7DataPtrE";
// Two words come before the six functions: two destructors and the four functions of Allocator.
constexpr size_t kHeader = 2, kFunctions = 6;
constexpr size_t kIsSimpleAt = 3;

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

size_t words_of(const void* table) {
  Dl_info info{};
  void* extra = nullptr;
  if (dladdr1(table, &info, &extra, RTLD_DL_SYMENT) == 0 || extra == nullptr || info.dli_saddr != table)
    return 0;
  return static_cast<const ElfW(Sym)*>(extra)->st_size / sizeof(void*);
}

std::string check_tables(void* library, Allocator* current) {
  void* const* base = nullptr;
  void* const* known = nullptr;
  void* is_simple = nullptr;
  if (!find(library, kAllocatorTable, base) || !find(library, kDefaultTable, known) ||
      !find(library, kIsSimple, is_simple))
    return "this libc10.so has no c10::Allocator of the known kind";
  if (words_of(base) != kHeader + kFunctions || words_of(known) != kHeader + kFunctions)
    return "c10::Allocator of this torch has other virtual functions than those that are known";
  if (known[kHeader + kIsSimpleAt] != is_simple)
    return "c10::Allocator of this torch has its virtual functions in another order than is known";
  if (*reinterpret_cast<void* const* const*>(current) != known + kHeader)
    return "another allocator than torch's own is in use already";
  return "";
}

}  // namespace

std::string find_c10(const char* libc10, const char* libtorch_cpu, C10& c10) {
  void* const base = dlopen(libc10, RTLD_LAZY | RTLD_NOLOAD);
  void* const cpu = dlopen(libtorch_cpu, RTLD_LAZY | RTLD_NOLOAD);
  if (base == nullptr || cpu == nullptr) return "libc10.so and libtorch_cpu.so are not where torch has them";
  if (!find(base, "_ZN3c1015GetCPUAllocatorEv", c10.get) ||
      !find(base, "_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh", c10.set))
    return "this libc10.so has no functions that set and get the CPU allocator";
  if (!find(cpu, "_ZN5torch8autograd25get_current_graph_task_idEv", c10.graph_task))
    return "this libtorch_cpu.so does not say whether a backward pass runs";
  Allocator* const current = c10.get();
  return current == nullptr ? "torch has no CPU allocator" : check_tables(base, current);
}

}  // namespace rueda::torch
