// The operations have Horovod's names, because saved graphs and users' message filters contain them.
#include "plugins/tensorflow/register.h"

#include <initializer_list>
#include <string_view>
#include <vector>

#include "plugins/tensorflow/call.h"
#include "plugins/tensorflow/kernel.h"
#include "plugins/tensorflow/marks.h"
#include "plugins/tensorflow/numbers.h"
#include "plugins/tensorflow/shapes.h"
#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {
namespace {

struct OpDefinition {
  const char* name;
  std::vector<const char*> inputs;
  std::vector<const char*> outputs;
  std::vector<const char*> attributes;
  ShapeFunction shapes;
  void* (*create)(TF_OpKernelConstruction*);
};

constexpr const char* kTypes =
    "T: {half, bfloat16, float, double, uint8, int8, uint16, int16, int32, int64, bool}";
constexpr const char* kCount = "num_tensors: int >= 1";

std::vector<const char*> attributes(std::initializer_list<const char*> own) {
  std::vector<const char*> all = {kTypes, "process_set_id: int = 0", "ignore_name_scope: bool = false",
                                  "tensor_name: string = ''"};
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

template <rueda_collective kWhat, bool kIsGroup = false>
void* create(TF_OpKernelConstruction* construction) {
  return read_kernel(construction, kWhat, kIsGroup);
}

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  Call::start(*static_cast<const Kernel*>(kernel), context, done);
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

// Only looks at `done`, so that the front end can learn the mode before it builds anything.
void* create_probe(TF_OpKernelConstruction* /*construction*/) { return new Kernel; }
void compute_probe(void* /*kernel*/, TF_OpKernelContext* /*context*/, TF_AsyncOpKernelDoneCallback* done) {
  Done copy(done);
  copy();
}

std::vector<OpDefinition> reductions() {
  const std::initializer_list<const char*> factors = {"reduce_op: int = 1", "prescale_factor: float = 1.0",
                                                      "postscale_factor: float = 1.0", "wire: int = 0"};
  std::vector<const char*> reduces = attributes(factors);
  std::vector<const char*> group_reduces = reduces;
  group_reduces.push_back(kCount);
  return {
      {"HorovodAllreduce", {"tensor: T"}, {"sum: T"}, reduces, same_shapes, create<RUEDA_ALLREDUCE>},
      {"HorovodGroupedAllreduce",
       {"tensors: num_tensors * T"},
       {"sum: num_tensors * T"},
       group_reduces,
       same_shapes,
       create<RUEDA_ALLREDUCE, true>},
      {"HorovodReducescatter",
       {"tensor: T"},
       {"output: T"},
       reduces,
       scattered_rows,
       create<RUEDA_REDUCESCATTER>},
      {"HorovodGroupedReducescatter",
       {"tensors: num_tensors * T"},
       {"outputs: num_tensors * T"},
       group_reduces,
       scattered_rows,
       create<RUEDA_REDUCESCATTER, true>},
  };
}

std::vector<OpDefinition> moves() {
  return {
      {"HorovodAllgather",
       {"tensor: T"},
       {"output: T"},
       attributes({}),
       unknown_rows,
       create<RUEDA_ALLGATHER>},
      {"HorovodGroupedAllgather",
       {"tensors: num_tensors * T"},
       {"outputs: num_tensors * T"},
       attributes({kCount}),
       unknown_rows,
       create<RUEDA_ALLGATHER, true>},
      {"HorovodBroadcast",
       {"tensor: T"},
       {"output: T"},
       attributes({"root_rank: int"}),
       same_shapes,
       create<RUEDA_BROADCAST>},
      {"HorovodGroupedBroadcast",
       {"tensors: num_tensors * T"},
       {"outputs: num_tensors * T"},
       attributes({"root_rank: int", kCount}),
       same_shapes,
       create<RUEDA_BROADCAST, true>},
      {"HorovodAlltoall",
       {"tensor: T", "splits: int32"},
       {"output: T", "received_splits: int32"},
       attributes({}),
       exchanged_rows,
       create<RUEDA_ALLTOALL>},
      {"HorovodJoin", {}, {"output: int32"}, {}, one_number, create<RUEDA_JOIN>},
      {"HorovodBarrier",
       {},
       {},
       {"process_set_id: int = 0", "ignore_name_scope: bool = false", "tensor_name: string = ''"},
       nullptr,
       create<RUEDA_BARRIER>},
  };
}

std::vector<OpDefinition> questions() {
  return {
      {"HorovodRank", {}, {"rank: int32"}, {}, one_number, create_question<Question::kRank>},
      {"HorovodLocalRank", {}, {"local_rank: int32"}, {}, one_number, create_question<Question::kLocalRank>},
      {"HorovodLocalSize", {}, {"local_size: int32"}, {}, one_number, create_question<Question::kLocalSize>},
      {"HorovodSize",
       {},
       {"size: int32"},
       {"process_set_id: int = 0"},
       one_number,
       create_question<Question::kSize>},
      {"HorovodProcessSetIncluded",
       {},
       {"included: int32"},
       {"process_set_id: int = 0"},
       one_number,
       create_question<Question::kIsIncluded>},
  };
}

std::string define(const OpDefinition& operation) {
  TF_OpDefinitionBuilder* const builder = tf.TF_NewOpDefinitionBuilder(operation.name);
  for (const char* attribute : operation.attributes) tf.TF_OpDefinitionBuilderAddAttr(builder, attribute);
  for (const char* input : operation.inputs) tf.TF_OpDefinitionBuilderAddInput(builder, input);
  for (const char* output : operation.outputs) tf.TF_OpDefinitionBuilderAddOutput(builder, output);
  // Stateful, so that TensorFlow never merges it with another one, leaves it out, or computes it while it
  // optimises a graph.
  tf.TF_OpDefinitionBuilderSetIsStateful(builder, true);
  if (operation.shapes != nullptr) {
    tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, operation.shapes);
  }
  TfStatus status;
  tf.TF_RegisterOpDefinition(builder, status.get());
  return status.is_ok() ? std::string() : tf.TF_Message(status.get());
}

// Kernels for the GPU take host memory, so TensorFlow copies the tensors there and back.
std::string add_kernel(const OpDefinition& operation, TF_KernelBuilder* builder, bool is_gpu) {
  for (const auto* arguments : {&operation.inputs, &operation.outputs}) {
    for (const std::string_view spec : *arguments) {
      const std::string name(spec.substr(0, spec.find(':')));
      if (is_gpu) tf.TF_KernelBuilder_HostMemory(builder, name.c_str());
    }
  }
  TfStatus status;
  tf.TF_RegisterKernelBuilder(operation.name, builder, status.get());
  return status.is_ok() ? std::string() : tf.TF_Message(status.get());
}

std::string add_synchronous(const OpDefinition& operation, void (*compute)(void*, TF_OpKernelContext*),
                            void (*destroy)(void*)) {
  std::string why = define(operation);
  for (const char* device : {"CPU", "GPU"}) {
    if (!why.empty()) break;
    auto* const builder = tf.TF_NewKernelBuilder(operation.name, device, operation.create, compute, destroy);
    why = add_kernel(operation, builder, std::string_view(device) == "GPU");
  }
  return why;
}

}  // namespace

std::string register_everything() {
  const OpDefinition probe{"ProbeRueda", {}, {}, {}, nullptr, create_probe};
  std::string why = define(probe);
  auto* const prober = tf.TF_NewAsyncKernelBuilder(probe.name, "CPU", create_probe, compute_probe, destroy);
  if (why.empty()) why = add_kernel(probe, prober, false);
  std::vector<OpDefinition> collectives = reductions();
  for (const OpDefinition& move : moves()) collectives.push_back(move);
  for (const OpDefinition& operation : collectives) {
    if (why.empty()) why = define(operation);
    for (const bool is_gpu : {false, true}) {
      if (!why.empty()) break;
      why = add_kernel(operation,
                       tf.TF_NewAsyncKernelBuilder(operation.name, is_gpu ? "GPU" : "CPU", operation.create,
                                                   compute, destroy),
                       is_gpu);
    }
  }
  for (const OpDefinition& question : questions())
    if (why.empty()) why = add_synchronous(question, answer, forget_question);
  const OpDefinition step{"MarkStepRueda", {}, {}, {"source: int"}, nullptr, create_mark};
  return why.empty() ? add_synchronous(step, mark, forget_mark) : why;
}

}  // namespace rueda::tensorflow
