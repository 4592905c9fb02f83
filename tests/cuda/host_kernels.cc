#include "host_kernels.h"

#include <map>
#include <tuple>
#include <utility>

#include "rueda/memory/cuda/device_kernels.h"

namespace fake_cuda {
namespace {

using namespace rueda::cuda::device;

template <class Arguments, size_t... kIndex>
Arguments copy_arguments(void** from, std::index_sequence<kIndex...> /*indices*/) {
  return Arguments{*static_cast<std::tuple_element_t<kIndex, Arguments>*>(from[kIndex])...};
}

// body_at: returns the body for the thread at a place. Body is its type, which takes the arguments.
template <class BodyAt, class Body, class... Types>
HostKernel make(BodyAt body_at, void (Body::* /*shape*/)(Types...) const) {
  return [body_at](Grid grid, void** from) -> std::function<void()> {
    using Arguments = std::tuple<Types...>;
    const auto arguments = copy_arguments<Arguments>(from, std::index_sequence_for<Types...>());
    return [body_at, grid, arguments] {
      for (unsigned block = 0; block < grid.blocks; ++block)
        for (unsigned thread = 0; thread < grid.threads; ++thread)
          std::apply(body_at(ThreadIndex{block, grid.blocks, thread, grid.threads}), arguments);
    };
  };
}

template <class BodyAt>
HostKernel make(BodyAt body_at) {
  using Body = decltype(body_at(ThreadIndex{}));
  return make(body_at, &Body::operator());
}

const std::map<std::string, HostKernel>& kernels() {
  static const auto* const all = new std::map<std::string, HostKernel>{
#define FAKE_CUDA_KERNEL(name, parameters, ...) \
  {#name, make([](ThreadIndex at) { return [at] parameters { __VA_ARGS__; }; })},
      RUEDA_KERNELS(FAKE_CUDA_KERNEL)
#undef FAKE_CUDA_KERNEL
  };
  return *all;
}

}  // namespace

const HostKernel* find_kernel(const std::string& name) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second;
}

}  // namespace fake_cuda
