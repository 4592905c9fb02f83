#include "plugins/tensorflow/shapes.h"

namespace rueda::tensorflow {
namespace {

constexpr auto kUnknownSize = static_cast<size_t>(-1);  // TensorFlow's number for an unknown dimension

class Shape {
 public:
  Shape() : handle_(tf.TF_NewShapeHandle()) {}
  explicit Shape(TF_ShapeHandle* handle) : handle_(handle) {}
  ~Shape() { tf.TF_DeleteShapeHandle(handle_); }
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;
  [[nodiscard]] TF_ShapeHandle* get() const { return handle_; }

 private:
  TF_ShapeHandle* handle_;
};

bool is_ok(const TF_Status* status) { return tf.TF_GetCode(status) == kTfOk; }

// Gives output `index` the shape of input `index`, with an unknown number of rows. False when the shape of
// the input is unknown or has no rows.
bool set_rows_unknown(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  const Shape input;
  tf.TF_ShapeInferenceContextGetInput(context, index, input.get(), status);
  if (!is_ok(status) || tf.TF_ShapeInferenceContextRankKnown(context, input.get()) == 0 ||
      tf.TF_ShapeInferenceContextRank(context, input.get()) < 1) {
    return false;
  }
  const Shape rows(tf.TF_ShapeInferenceContextVectorFromSize(context, kUnknownSize));
  const Shape rest;
  const Shape output;
  tf.TF_ShapeInferenceContextSubshape(context, input.get(), 1, INT64_MAX, rest.get(), status);
  if (is_ok(status)) {
    tf.TF_ShapeInferenceContextConcatenateShapes(context, rows.get(), rest.get(), output.get(), status);
  }
  if (is_ok(status)) tf.TF_ShapeInferenceContextSetOutput(context, index, output.get(), status);
  return true;
}

bool is_scalar(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  const Shape input;
  tf.TF_ShapeInferenceContextGetInput(context, index, input.get(), status);
  return is_ok(status) && tf.TF_ShapeInferenceContextRankKnown(context, input.get()) != 0 &&
         tf.TF_ShapeInferenceContextRank(context, input.get()) == 0;
}

}  // namespace

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(tf.TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && is_ok(status); ++i) {
    const Shape shape;
    tf.TF_ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (is_ok(status)) tf.TF_ShapeInferenceContextSetOutput(context, i, shape.get(), status);
  }
}

void unknown_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  // If one output cannot be described, all of them stay unknown, because the API cannot do this for
  // a single one.
  const auto count = static_cast<int>(tf.TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && is_ok(status); ++i) {
    if (!set_rows_unknown(context, i, status) && is_ok(status)) {
      return tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
    }
  }
}

void scattered_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(tf.TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && is_ok(status); ++i) {
    if (is_scalar(context, i, status)) {
      return tf.TF_SetStatus(status, kTfInvalidArgument,
                             "HorovodReducescatter does not support scalar inputs.");
    }
  }
  unknown_rows(context, status);
}

void exchanged_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  if (!set_rows_unknown(context, 0, status) && is_ok(status)) {
    tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
  }
  if (!is_ok(status)) return;
  const Shape splits(tf.TF_ShapeInferenceContextVectorFromSize(context, kUnknownSize));
  tf.TF_ShapeInferenceContextSetOutput(context, 1, splits.get(), status);
}

void one_number(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape scalar(tf.TF_ShapeInferenceContextScalar(context));
  tf.TF_ShapeInferenceContextSetOutput(context, 0, scalar.get(), status);
}

}  // namespace rueda::tensorflow
