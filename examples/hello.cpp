// hello in C++: handles free themselves, and errors are exceptions.    hello++ MODEL [PROMPT]
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <weft.h>

template <auto Free> struct Freed {
  template <class T> void operator()(T *p) const { Free(p); }
};
using Model = std::unique_ptr<weft_model, Freed<weft_model_close>>;
using Sampler = std::unique_ptr<weft_sampler, Freed<weft_sampler_free>>;
using Stream = std::unique_ptr<weft_stream, Freed<weft_stream_free>>;

// A function of the library: throws what it says if it fails.
template <class F> void call(F f) {
  weft_error err;
  if (f(&err)) throw std::runtime_error(err.text);
}

static std::string continue_text(weft_model *model, const std::string &prompt, int most) {
  const weft_vocab *vocab = weft_model_vocab(model);
  int32_t *ids;
  size_t n;
  call([&](weft_error *e) { return weft_tokenize(vocab, prompt.data(), prompt.size(), WEFT_ADD_SPECIAL, &ids, &n, e); });
  std::unique_ptr<int32_t, Freed<weft_free>> owned(ids);
  weft_sampling sampling = weft_sampling_default();
  sampling.temp = 0;
  weft_sampler *made;
  call([&](weft_error *e) { return weft_sampler_new(weft_model_vocab_size(model), &sampling, &made, e); });
  Sampler sampler(made);
  Stream stream(weft_stream_new(vocab, false));
  const float *logits;
  call([&](weft_error *e) { return weft_decode(model, ids, n, 0, &logits, e); });
  std::string text;
  for (int pos = static_cast<int>(n), i = 0; i < most; i++, pos++) {
    int32_t id;
    call([&](weft_error *e) { return weft_sample(sampler.get(), logits, &id, e); });
    if (weft_is_end(vocab, id)) break;
    size_t n_text;
    const char *piece = weft_stream_add(stream.get(), id, &n_text);
    text.append(piece, n_text);
    call([&](weft_error *e) { return weft_decode(model, &id, 1, pos, &logits, e); });
  }
  return text;
}

int main(int argc, char **argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: hello++ MODEL [PROMPT]\n"), 2;
  std::string prompt = argc > 2 ? argv[2] : "def hello(name):\n";
  try {
    weft_model *opened;
    call([&](weft_error *e) { return weft_model_open(argv[1], nullptr, &opened, e); });
    Model model(opened);
    std::printf("%s%s\n", prompt.c_str(), continue_text(model.get(), prompt, 32).c_str());
  } catch (const std::exception &e) {
    std::fprintf(stderr, "hello++: %s\n", e.what());
    return 1;
  }
}
