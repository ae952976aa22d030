// JPEG by libjpeg-turbo (the API of libjpeg, of the version of the header here), with Pillow's settings: the slow
// integer transform, smooth upsampling. A truncated file is an error; warnings are not.
#include "media/decode.h"
#include <setjmp.h>
#include <string.h>
#include <jpeglib.h>

#define FUNCTIONS(F) \
  F(jpeg_std_error) F(jpeg_CreateDecompress) F(jpeg_read_header) F(jpeg_start_decompress) F(jpeg_read_scanlines) \
  F(jpeg_destroy_decompress) F(jpeg_save_markers) F(jpeg_resync_to_restart)
static struct {
#define F(name) __typeof__(name) *name;
  FUNCTIONS(F)
#undef F
} J;
#define TEXT(x) #x
#define SONAME(version) "libjpeg.so." TEXT(version)
#if JPEG_LIB_VERSION == 80
#define LIBRARY SONAME(8)
#else
#define LIBRARY SONAME(62)
#endif
static library jpeg = {LIBRARY, "libjpeg62-turbo", NULL};

static int load_jpeg(error *err) {
  static const library_symbol symbols[] = {
#define F(name) {#name, (void **)&J.name},
    FUNCTIONS(F)
#undef F
  };
  return library_open(&jpeg, symbols, COUNT(symbols), err);
}

enum { EXIF_MARKER = JPEG_APP0 + 1, MOST_EXIF = 65533 };

typedef struct jpeg_read {
  struct jpeg_decompress_struct d;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  jmp_buf out;
  const media_limits *limits;
  raw_picture *picture;
  uint8_t *row;              // of four inks
  error *err;
} jpeg_read;

NORETURN static void on_jpeg_error(j_common_ptr d) {
  jpeg_read *r = d->client_data;
  char text[JMSG_LENGTH_MAX];
  r->errors.format_message(d, text);
  error_set(r->err, "the JPEG cannot be decoded: %s", text);
  longjmp(r->out, 1);
}
static void on_jpeg_message(j_common_ptr d) { (void)d; }
static void on_jpeg_warning(j_common_ptr d, int level) { (void)d; (void)level; }

static void start_source(j_decompress_ptr d) { (void)d; }
NORETURN static boolean source_is_empty(j_decompress_ptr d) {
  jpeg_read *r = d->client_data;
  error_set(r->err, "the JPEG ends early");
  longjmp(r->out, 1);
}
static void skip_source(j_decompress_ptr d, long n) {
  if (n <= 0) return;
  if ((size_t)n > d->src->bytes_in_buffer) source_is_empty(d);
  d->src->next_input_byte += n;
  d->src->bytes_in_buffer -= (size_t)n;
}

static int jpeg_orientation(const jpeg_read *r) {
  for (jpeg_saved_marker_ptr m = r->d.marker_list; m; m = m->next)
    if (m->marker == EXIF_MARKER && m->data_length > 6 && !memcmp(m->data, "Exif\0\0", 6))
      return exif_orientation(m->data, m->data_length);
  return 0;
}

// Inks are stored inverted. Rounded like Pillow's conversion from CMYK.
static void inks_to_rgb(const uint8_t *from, uint8_t *to, int64_t width) {
  for (int64_t x = 0; x < width; x++, from += 4)
    for (int c = 0; c < 3; c++) {
      int white = from[3], product = white * (255 - from[c]) + 128;
      int v = white - (((product >> 8) + product) >> 8);
      *to++ = (uint8_t)(v < 0 ? 0 : v);
    }
}

static void read_rows(jpeg_read *r) {
  raw_picture *p = r->picture;
  int inks = r->d.output_components;
  while (r->d.output_scanline < r->d.output_height) {
    uint8_t *to = p->at + (int64_t)r->d.output_scanline * p->width * 3, *row = inks == 4 ? r->row : to;
    J.jpeg_read_scanlines(&r->d, &row, 1);
    if (inks == 4) inks_to_rgb(r->row, to, p->width);
    for (int64_t x = p->width; inks == 1 && x-- > 0;) to[x * 3] = to[x * 3 + 1] = to[x * 3 + 2] = to[x];
  }
}

static int read_jpeg(jpeg_read *r) {
  J.jpeg_read_header(&r->d, TRUE);
  int n = r->d.num_components;
  if (n != 1 && n != 3 && n != 4) return error_set(r->err, "a JPEG of %d components is not read here", n);
  r->picture->orientation = jpeg_orientation(r);
  // coefficients of the whole image, if it has several scans
  bool scans = r->d.progressive_mode || r->d.comps_in_scan < n;
  const picture_size size = {r->d.image_width, r->d.image_height, 3, scans ? 2 * n : 0};
  if (picture_take(r->picture, &size, r->limits, r->err)) return -1;
  r->d.out_color_space = n == 1 ? JCS_GRAYSCALE : n == 3 ? JCS_RGB : JCS_CMYK;
  J.jpeg_start_decompress(&r->d);
  if (n == 4) r->row = xmalloc((size_t)r->picture->width * 4);
  read_rows(r);
  return 0;
}

static int decode_jpeg_picture(const uint8_t *data, size_t n, const media_limits *limits, raw_picture *out,
                               error *err) {
  jpeg_read *r = xcalloc(1, sizeof *r);
  volatile int failed = -1;
  r->limits = limits;
  r->picture = out;
  r->err = err;
  r->d.err = J.jpeg_std_error(&r->errors);
  r->errors.error_exit = on_jpeg_error;
  r->errors.output_message = on_jpeg_message;
  r->errors.emit_message = on_jpeg_warning;
  r->d.client_data = r;
  if (!setjmp(r->out)) {
    J.jpeg_CreateDecompress(&r->d, JPEG_LIB_VERSION, sizeof r->d);
    r->source = (struct jpeg_source_mgr){data, n, start_source, source_is_empty, skip_source,
                                         J.jpeg_resync_to_restart, start_source};
    r->d.src = &r->source;
    J.jpeg_save_markers(&r->d, EXIF_MARKER, MOST_EXIF);
    failed = read_jpeg(r);
  }
  J.jpeg_destroy_decompress(&r->d);
  free(r->row);
  free(r);
  return failed;
}

const decoder decode_jpeg = {"JPEG", load_jpeg, decode_jpeg_picture};
