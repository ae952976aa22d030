// PNG by libpng: all kinds become 8-bit RGB and alpha. Colour profiles and gamma are not applied, as in Pillow. Of 16
// bits the upper 8 are used; of an animated PNG the first frame.
#include "media/decode.h"
#include <setjmp.h>
#include <string.h>
#include <png.h>

#define FUNCTIONS(F) \
  F(png_create_read_struct) F(png_create_info_struct) F(png_destroy_read_struct) F(png_set_read_fn) F(png_get_io_ptr) \
  F(png_get_error_ptr) F(png_set_user_limits) F(png_set_chunk_malloc_max) F(png_read_info) F(png_get_IHDR) \
  F(png_set_expand) F(png_set_strip_16) F(png_set_gray_to_rgb) F(png_set_interlace_handling) \
  F(png_read_update_info) F(png_get_rowbytes) F(png_read_row) F(png_get_valid)
static struct {
#define F(name) __typeof__(name) *name;
  FUNCTIONS(F)
#undef F
} P;
static library libpng = {"libpng16.so.16", "libpng16-16", NULL};

static int load_png(error *err) {
  static const library_symbol symbols[] = {
#define F(name) {#name, (void **)&P.name},
    FUNCTIONS(F)
#undef F
  };
  return library_open(&libpng, symbols, COUNT(symbols), err);
}

enum { MOST_CHUNK = 8 << 20, HEADER = 8 };

typedef struct png_read {
  jmp_buf out;
  png_structp p;
  png_infop info;
  const uint8_t *data;
  size_t n, at;
  error *err;
} png_read;

NORETURN static void on_png_error(png_structp p, png_const_charp text) {
  png_read *r = P.png_get_error_ptr(p);
  error_set(r->err, "the PNG cannot be decoded: %s", text);
  longjmp(r->out, 1);
}
static void on_png_warning(png_structp p, png_const_charp text) { (void)p; (void)text; }

static void give_bytes(png_structp p, png_bytep to, size_t n) {
  png_read *r = P.png_get_io_ptr(p);
  if (n > r->n - r->at) {
    error_set(r->err, "the PNG ends early");
    longjmp(r->out, 1);
  }
  memcpy(to, r->data + r->at, n);
  r->at += n;
}

// The chunk may follow the pixels, where libpng does not read it.
static int png_orientation(const uint8_t *data, size_t n) {
  for (size_t at = HEADER; at + 12 <= n;) {
    size_t size = read_be32(data + at);
    if (size > n - at - 12) return 0;
    if (!memcmp(data + at + 4, "eXIf", 4)) return exif_orientation(data + at + 8, size);
    at += size + 12;
  }
  return 0;
}

static int read_png(png_read *r, const media_limits *limits, raw_picture *out) {
  png_uint_32 width, height;
  int depth, colour;
  P.png_set_read_fn(r->p, r, give_bytes);
  P.png_set_user_limits(r->p, 0x7fffffff, 0x7fffffff);          // the limits below name the numbers
  P.png_set_chunk_malloc_max(r->p, MOST_CHUNK);
  P.png_read_info(r->p, r->info);
  P.png_get_IHDR(r->p, r->info, &width, &height, &depth, &colour, NULL, NULL, NULL);
  bool clear = colour & PNG_COLOR_MASK_ALPHA || P.png_get_valid(r->p, r->info, PNG_INFO_tRNS);
  if (picture_take(out, &(picture_size){width, height, clear ? 4 : 3, 0}, limits, r->err)) return -1;
  P.png_set_expand(r->p);
  if (depth == 16) P.png_set_strip_16(r->p);
  if (!(colour & PNG_COLOR_MASK_COLOR)) P.png_set_gray_to_rgb(r->p);
  int passes = P.png_set_interlace_handling(r->p);
  P.png_read_update_info(r->p, r->info);
  size_t row = (size_t)out->width * (size_t)out->channels;
  if (P.png_get_rowbytes(r->p, r->info) != row) return error_set(r->err, "the PNG has rows of an unknown kind");
  memset(out->at, 0, row * (size_t)out->height);                 // rows of the first passes are read and written
  for (int i = 0; i < passes; i++)
    for (png_uint_32 y = 0; y < height; y++) P.png_read_row(r->p, out->at + y * row, NULL);
  return 0;
}

static int decode_png_picture(const uint8_t *data, size_t n, const media_limits *limits, raw_picture *out, error *err) {
  png_read *r = xcalloc(1, sizeof *r);
  volatile int failed = -1;
  *r = (png_read){.data = data, .n = n, .err = err};
  out->orientation = png_orientation(data, n);             // before picture_take, which asks for memory for the turn
  if (!setjmp(r->out)) {
    r->p = P.png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_png_error, on_png_warning);
    r->info = r->p ? P.png_create_info_struct(r->p) : NULL;
    if (r->info) failed = read_png(r, limits, out);
    else error_set(err, "there is no memory for a PNG");
  }
  if (r->p) P.png_destroy_read_struct(&r->p, &r->info, NULL);
  free(r);
  return failed;
}

const decoder decode_png = {"PNG", load_png, decode_png_picture};
