#include "client/networks/network.h"

#include <algorithm>
#include <utility>

namespace leeway::networks {

template <typename T>
Network<T>::Network(std::unique_ptr<Embedding<T>> embedding, Layers layers, Extent largest,
                    int32_t ignored)
    : embedding_(std::move(embedding)),
      layers_(std::move(layers)),
      largest_(largest),
      loss_(ignored),
      tokens_(static_cast<size_t>(embedding_ ? largest.rows() : 0)),
      targets_(static_cast<size_t>(largest.rows())) {
  const Index rows = largest.rows();
  storage_.reserve(layers_.size() + 1);
  storage_.emplace_back(rows * layers_.front()->inputs());
  values_.push_back(storage_.back().data());
  if (embedding_) parameters_ += embedding_->parameters();
  Index widest = 0;
  for (const auto& layer : layers_) {
    offsets_.push_back(parameters_);
    parameters_ += layer->parameters();
    widest = std::max(widest, layer->inputs());
    if (!layer->in_place()) storage_.emplace_back(rows * layer->outputs());
    values_.push_back(storage_.back().data());
  }
  for (Vector<T>& errors : errors_) errors.resize(rows * widest);
}

template <typename T>
Block<T> Network<T>::Logits(const T* w, Extent extent, Rng* dropout) {
  if (embedding_) embedding_->Forward(w, extent, tokens_.data(), values_.front());
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->Forward(w + offsets_[i], extent, dropout, values_[i], values_[i + 1]);
  }
  return View(values_.back(), extent.rows(), layers_.back()->outputs());
}

template <typename T>
void Network<T>::Backward(const T* w, Extent extent, T* gradient, Write write) {
  T* dy = values_.back();  // the loss left its gradient in the logits' place
  int turn = 0;
  for (size_t i = layers_.size(); i-- > 0;) {
    T* dx = dy;
    if (i == 0 && !embedding_) {
      dx = nullptr;
    } else if (!layers_[i]->in_place()) {
      dx = errors_[turn].data();
      turn = 1 - turn;
    }
    layers_[i]->Backward(w + offsets_[i], extent, values_[i], values_[i + 1], dy, dx,
                         gradient + offsets_[i], write);
    dy = dx;
  }
  if (embedding_) embedding_->Backward(extent, tokens_.data(), dy, gradient, write);
}

template <typename T>
Outcome Network<T>::Train(const T* w, Extent extent, T scale, Rng* dropout, T* gradient,
                          Write write) {
  const Outcome outcome = loss_.Gradient(Logits(w, extent, dropout), targets_.data(), scale);
  Backward(w, extent, gradient, write);
  return outcome;
}

template <typename T>
Outcome Network<T>::Test(const T* w, Extent extent,
                         const std::function<void(const Block<T>& logits)>& logits) {
  Block<T> found = Logits(w, extent, nullptr);
  if (logits) logits(found);
  return loss_.Score(found, targets_.data());
}

template class Network<float>;
template class Network<double>;

}  // namespace leeway::networks
