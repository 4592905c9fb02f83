#include "rueda/runtime/prepared.h"

#include <utility>

namespace rueda::runtime {

NameView Prepared::view() const {
  return {.process_set = tensor.request.process_set, .name = tensor.request.name, .hash = hash};
}

std::shared_ptr<Operation> Prepared::renew(const PreparedStart& start) {
  // The copy orders what follows after whatever others did with the operation before they gave it up.
  std::shared_ptr<Operation> last = operation;
  const bool is_free = last != nullptr && last.use_count() == 2 && last->tensors.front().allocated == nullptr;
  if (is_free) {
    last.reset();
    operation->reset();
  } else {
    operation = std::make_shared<Operation>();
    operation->prepared = number;
    Tensor& made = operation->tensors.emplace_back();
    made.request = tensor.request;
    made.output_bytes = tensor.output_bytes;
    made.has_feedback = tensor.has_feedback;
    made.is_only_read = tensor.is_only_read;
    made.memory = tensor.memory;
    made.ready_stream.is_given = tensor.ready_stream.is_given;
  }
  Tensor& next = operation->tensors.front();
  next.input = start.input;
  next.output = start.output;
  if (next.ready_stream.is_given)
    next.ready_stream.handle = start.ready;
  else
    next.memory.ready = start.ready;
  operation->open = 1;
  return last;
}

void Prepared::enter(InFlightNames& names) {
  if (name.empty()) {
    names.try_emplace(NameKey(view()), TensorRef{operation, 0});
    return;
  }
  name.mapped() = TensorRef{operation, 0};
  names.insert(std::move(name));
}

void Prepared::enter(OperationsByHandle& handles) {
  if (handle.empty()) {
    handles.emplace(operation->handle, operation);
    return;
  }
  handle.key() = operation->handle;
  handle.mapped() = operation;
  handles.insert(std::move(handle));
}

int64_t PreparedTable::add(Tensor tensor) {
  const int64_t number = next();
  all_.push_back(std::make_shared<Prepared>(number, std::move(tensor)));
  return number;
}

Prepared* PreparedTable::find(int64_t number) const {
  return is_known(number) ? all_[place(number)].get() : nullptr;
}

std::shared_ptr<const Tensor> PreparedTable::tensor(int64_t number) const {
  Prepared* const found = find(number);
  if (found == nullptr) return nullptr;
  return {all_[place(number)], &found->tensor};
}

std::shared_ptr<Prepared> PreparedTable::take(int64_t number) {
  return is_known(number) ? std::exchange(all_[place(number)], nullptr) : nullptr;
}

std::vector<std::shared_ptr<Prepared>> PreparedTable::take_of(int32_t process_set) {
  std::vector<std::shared_ptr<Prepared>> taken;
  for (std::shared_ptr<Prepared>& one : all_)
    if (one != nullptr && one->tensor.request.process_set == process_set)
      taken.push_back(std::exchange(one, nullptr));
  return taken;
}

}  // namespace rueda::runtime
