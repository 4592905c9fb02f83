#include "rueda/control/seen_tensor.h"

#include "rueda/control/numbered_name.h"

namespace rueda::control {

bool recurs_as(const SeenTensor& first, const SeenTensor& second) {
  const Bucket &a = first.bucket, &b = second.bucket;
  const Entry &x = first.entry(), &y = second.entry();
  if (static_cast<const Terms&>(a) != b || a.process_set != b.process_set || a.root != b.root) return false;
  if (x.shape != y.shape || x.rows != y.rows || x.numbered_at != y.numbered_at) return false;
  if (x.numbered_at == 0) return x.name == y.name;
  const auto one = split_name(x.name, x.numbered_at), other = split_name(y.name, y.numbered_at);
  return one && other && one->before == other->before && one->after == other->after;
}

}  // namespace rueda::control
