# Libraries of the page of weft serve, from files of Debian packages: parsed Markdown, formulas, highlighting, text of PDFs.
# Each goes into the program compressed, and is listed in generated/serve/page_files.h as F(name, url, type, path).
# A library that is absent is left out: the page then shows plain text in its place.
set(page_out ${PROJECT_BINARY_DIR}/generated/serve)
set(page_rows "")
set(page_missing "")
find_program(WEFT_GZIP gzip)

# Compresses `from` and adds its row.
function(page_file name url type from)
  set(packed ${page_out}/${name}.gz)
  if(NOT EXISTS ${packed} OR ${from} IS_NEWER_THAN ${packed})
    file(MAKE_DIRECTORY ${page_out})
    execute_process(COMMAND ${WEFT_GZIP} -9 -n -c ${from} OUTPUT_FILE ${packed} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  set(page_rows "${page_rows} \\\n  F(${name}, \"/page/lib/${url}\", \"${type}\", \"${packed}\")" PARENT_SCOPE)
  set(page_inputs ${page_inputs} ${packed} PARENT_SCOPE)
endfunction()

# Modules of Node as one script: `global` becomes what the module `main` exports. modules: name=path.
function(page_bundle out global main licence)
  set(text "// ${licence}\n(() => {\nconst modules = {\n\"punycode\": (require, module) => { module.exports = { toASCII: (s) => s, toUnicode: (s) => s }; },\n")
  foreach(module IN LISTS ARGN)
    string(REGEX MATCH "^([^=]+)=(.*)$" found "${module}")
    set(name "${CMAKE_MATCH_1}")
    file(READ "${CMAKE_MATCH_2}" code)
    if(name MATCHES "\\.json$")
      set(code "module.exports = ${code}")
    endif()
    string(APPEND text "\"${name}\": (require, module, exports) => {\n${code}\n},\n")
  endforeach()
  string(APPEND text "}, made = {};
function load(from, id) {
  const parts = id[0] === \".\" ? from.split(\"/\").slice(0, -1) : [];
  for (const part of id.split(\"/\")) if (part === \"..\") parts.pop(); else if (part && part !== \".\") parts.push(part);
  const name = [\"\", \".js\", \".json\", \"/index.js\"].map((end) => parts.join(\"/\") + end).find((n) => modules[n]);
  if (made[name]) return made[name].exports;
  const module = made[name] = { exports: {} };
  modules[name]((other) => load(name, other), module, module.exports);
  return module.exports;
}
window.${global} = load(\"\", \"${main}\");
})();
")
  set(before "")
  if(EXISTS ${out})
    file(READ ${out} before)
  endif()
  if(NOT before STREQUAL text)
    file(WRITE ${out} "${text}")
  endif()
endfunction()

# name=path of each file below `folder`, with names that begin with `prefix`.
function(page_modules out prefix folder)
  file(GLOB_RECURSE found RELATIVE ${folder} ${folder}/*.js ${folder}/*.json)
  set(all "")
  foreach(file IN LISTS found)
    if(NOT file MATCHES "package\\.json$|pkgjs-lock\\.json$|(^|/)test/")
      list(APPEND all "${prefix}/${file}=${folder}/${file}")
    endif()
  endforeach()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

set(js "text/javascript; charset=utf-8")
find_path(WEFT_MARKDOWN_IT lib/parser_block.js PATHS /usr/share/nodejs/markdown-it NO_DEFAULT_PATH)
find_path(WEFT_HIGHLIGHT lib/highlight.js PATHS /usr/share/nodejs/highlight.js NO_DEFAULT_PATH)
find_path(WEFT_KATEX katex.min.css PATHS /usr/share/javascript/katex NO_DEFAULT_PATH)
find_path(WEFT_PDFJS pdf.worker.js PATHS /usr/share/javascript/pdf/build NO_DEFAULT_PATH)
if(NOT WEFT_GZIP)
  message(STATUS "no gzip: the page of weft serve shows plain text")
else()
  if(WEFT_MARKDOWN_IT)
    page_modules(modules markdown-it/lib ${WEFT_MARKDOWN_IT}/lib)
    foreach(part linkify-it mdurl uc.micro)
      page_modules(more ${part} ${WEFT_MARKDOWN_IT}/node_modules/${part})
      list(APPEND modules ${more})
    endforeach()
    page_bundle(${page_out}/markdown.js markdownit markdown-it/lib/index.js
                "markdown-it, linkify-it, mdurl and uc.micro, (c) Vitaly Puzrin, Alex Kocharin: MIT licence" ${modules})
    page_file(markdown_js markdown-it.js "${js}" ${page_out}/markdown.js)
  else()
    list(APPEND page_missing node-markdown-it)
  endif()

  if(WEFT_HIGHLIGHT)
    set(languages apache awk bash c clojure cmake coffeescript cpp cs css d dart delphi diff dockerfile dos elixir elm erlang
                  fortran fsharp gherkin glsl go gradle groovy haskell http ini java javascript json julia kotlin latex
                  less lisp llvm lua makefile markdown matlab nginx nix objectivec ocaml perl pgsql php plaintext powershell
                  prolog properties protobuf python r ruby rust scala scheme scss shell sql swift tcl tex typescript vbnet
                  verilog vhdl vim x86asm xml yaml)
    set(modules highlight.js/lib/highlight.js=${WEFT_HIGHLIGHT}/lib/highlight.js)
    set(main "const hljs = require(\"./highlight.js\");\n")
    foreach(language IN LISTS languages)
      if(EXISTS ${WEFT_HIGHLIGHT}/lib/languages/${language}.js)
        list(APPEND modules highlight.js/lib/languages/${language}.js=${WEFT_HIGHLIGHT}/lib/languages/${language}.js)
        string(APPEND main "hljs.registerLanguage(\"${language}\", require(\"./languages/${language}.js\"));\n")
      endif()
    endforeach()
    file(CONFIGURE OUTPUT ${page_out}/highlight_main.js CONTENT "${main}module.exports = hljs;\n" @ONLY)
    page_bundle(${page_out}/highlight.js hljs highlight.js/lib/main.js
                "highlight.js, (c) Ivan Sagalaev: BSD 3-clause licence" ${modules}
                highlight.js/lib/main.js=${page_out}/highlight_main.js)
    page_file(highlight_js highlight.js "${js}" ${page_out}/highlight.js)
  else()
    list(APPEND page_missing node-highlight.js)
  endif()

  if(WEFT_KATEX)
    page_file(katex_js katex.js "${js}" ${WEFT_KATEX}/katex.js)
    page_file(katex_css katex.css "text/css; charset=utf-8" ${WEFT_KATEX}/katex.min.css)
    file(GLOB fonts ${WEFT_KATEX}/fonts/*.woff2)
    foreach(font IN LISTS fonts)
      get_filename_component(name ${font} NAME_WE)
      string(MAKE_C_IDENTIFIER ${name} id)
      page_file(${id} fonts/${name}.woff2 font/woff2 ${font})
    endforeach()
  else()
    list(APPEND page_missing libjs-katex)
  endif()

  if(WEFT_PDFJS)
    page_file(pdf_js pdf.js "${js}" ${WEFT_PDFJS}/pdf.js)
    page_file(pdf_worker_js pdf.worker.js "${js}" ${WEFT_PDFJS}/pdf.worker.js)
  else()
    list(APPEND page_missing libjs-pdf)
  endif()
endif()
if(page_missing)
  list(JOIN page_missing ", " page_missing)
  message(STATUS "the page of weft serve goes without ${page_missing} (Debian packages)")
endif()
file(CONFIGURE OUTPUT ${page_out}/page_files.h @ONLY
  CONTENT "// Made by the build: files of libraries for the page, compressed. F(name, url, type, path).\n#define PAGE_FILES(F)@page_rows@\n")
