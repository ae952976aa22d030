# Weft for Homebrew on Linux, built from the checkout (or tap) that this file is in: brew install --HEAD packaging/homebrew/weft.rb
class Weft < Formula
  desc "Runs, serves and measures large language models in GGUF files"
  homepage "https://weft.invalid"
  license "MIT"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "opencl-headers" => :build
  depends_on "pkgconf" => :build
  depends_on "curl"
  depends_on "jansson"
  depends_on "jpeg-turbo"
  depends_on "libmicrohttpd"
  depends_on "libpng"
  depends_on "libsndfile"
  depends_on :linux
  depends_on "llvm"
  depends_on "nettle"
  depends_on "pcre2"
  depends_on "sqlite"
  depends_on "utf8proc"
  depends_on "webp"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DWEFT_TESTS=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
    # LLVM, libcurl, libmicrohttpd and the decoders are opened at run time, by their names.
    libraries = %w[llvm curl libmicrohttpd jpeg-turbo libpng libsndfile webp].map { |name| Formula[name].opt_lib }
    libexec.install bin/"weft"
    (bin/"weft").write_env_script libexec/"weft", LD_LIBRARY_PATH: "#{libraries.join(":")}:$LD_LIBRARY_PATH"
  end

  test do
    assert_match(/^weft \d+\.\d+\.\d+/, shell_output("#{bin}/weft --version"))
  end
end
