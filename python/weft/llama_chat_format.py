"""Chats with pictures and sounds: handlers for the parameter `chat_handler` of Llama, one for each family that llama-cpp-python knows.

A handler holds an mmproj file.  The conversation is written by the template of the model's file; a file without one gets the
format that the handler names.
"""
import base64
import binascii
import hashlib
import threading
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import _chat
from ._engine import Media, Medium, media_mark

if TYPE_CHECKING:
    from .llama import Llama

Message = Dict[str, Any]
MOST_BYTES = 64 << 20  # of a file that is fetched


class MTMDChatHandler:
    """Of any model with an mmproj file."""

    FORMAT: Optional[str] = None  # for files without a template; None: as for text

    def __init__(self, clip_model_path: str, verbose: bool = True, image_min_tokens: int = 0, image_max_tokens: int = 0,
                 **kwargs: Any) -> None:
        """clip_model_path: the mmproj file.  It is opened with the first conversation that needs it.
        image_min_tokens, image_max_tokens: of a picture; 0: as the model's own processor has it."""
        self.clip_model_path, self.verbose = clip_model_path, verbose
        self._tokens = max(image_min_tokens, 0), max(image_max_tokens, 0)
        self._media: Optional[Media] = None
        self._shown: Dict[bytes, Medium] = {}  # of the last conversation, by digests of files
        self._lock = threading.RLock()

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: Optional[str], local_dir: Optional[Any] = None,
                        cache_dir: Optional[Any] = None, **kwargs: Any) -> "MTMDChatHandler":
        """Of the one file of a repository of Hugging Face whose name matches filename (with *)."""
        from .llama import fetched
        kwargs.pop("local_dir_use_symlinks", None)
        return cls(clip_model_path=fetched(repo_id, filename or "*mmproj*.gguf", local_dir, cache_dir), **kwargs)

    def __call__(self, *, llama: "Llama", messages: List[Message], **kwargs: Any) -> Any:
        with self._lock:
            mark = media_mark()
            messages, media = self._marked(llama, messages, mark)
            return _chat.complete(llama, messages, named=self.FORMAT, media=(mark, media) if media else None, **kwargs)

    def load_image(self, image_url: str) -> bytes:
        """The bytes of a data: URL, or of what an http: or https: URL leads to."""
        scheme = urllib.parse.urlsplit(image_url[:64]).scheme
        if scheme == "data":
            head, comma, data = image_url.partition(",")
            try:
                return base64.b64decode(data, validate=True) if head.endswith(";base64") else urllib.parse.unquote_to_bytes(data)
            except binascii.Error as e:
                raise ValueError(f"image_url: {head},... is no base64 ({e})") from e
        if scheme not in ("http", "https"):
            raise ValueError(f"image_url: it begins with data:, http: or https:, not with {image_url[:20]!r}")
        request = urllib.request.Request(image_url, headers={"User-Agent": "weft"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            data = answer.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"image_url: {image_url} is larger than {MOST_BYTES >> 20} MiB")
        return data

    def _marked(self, llama: "Llama", messages: List[Message], mark: str) -> Tuple[List[Message], List[Medium]]:
        """Messages with marks in the places of pictures and sounds, and these in order."""
        media: List[Medium] = []
        shown: Dict[bytes, Medium] = {}

        def written(part: Message) -> str:
            if part.get("type") == "text":
                return str(part["text"])
            data, name = self._file(part)
            key = hashlib.sha256(data).digest()
            shown[key] = shown.get(key) or self._shown.get(key) or Medium(self._opened(llama), data, name)
            media.append(shown[key])
            return f"{mark}{len(media) - 1}>"

        found = [{**message, "content": "".join(map(written, message["content"]))} if isinstance(message.get("content"), list) else message
                 for message in messages]
        self._shown = shown
        return found, media

    def _file(self, part: Message) -> Tuple[bytes, str]:
        kind = part.get("type")
        if kind == "image_url":
            url = part["image_url"]
            return self.load_image(url if isinstance(url, str) else url["url"]), "image_url"
        if kind == "input_audio":
            try:
                return base64.b64decode(part["input_audio"]["data"], validate=True), "input_audio"
            except binascii.Error as e:
                raise ValueError(f"input_audio: the data is no base64 ({e})") from e
        raise ValueError(f"content: a part's type is text, image_url or input_audio, not {kind!r}")

    def _opened(self, llama: "Llama") -> Media:
        model = llama._running()
        if self._media is None or self._media.model is not model:
            self._shown = {}
            self._media = Media(model, self.clip_model_path, *self._tokens)
        return self._media


class Llava15ChatHandler(MTMDChatHandler):
    FORMAT = "vicuna"


class Llava16ChatHandler(MTMDChatHandler):
    FORMAT = "vicuna"


class ObsidianChatHandler(MTMDChatHandler):
    FORMAT = "chatml"


class MoondreamChatHandler(MTMDChatHandler):
    FORMAT = "moondream"


class NanoLlavaChatHandler(MTMDChatHandler):
    FORMAT = "chatml"


class Llama3VisionAlphaChatHandler(MTMDChatHandler):
    FORMAT = "llama3"


class MiniCPMv26ChatHandler(MTMDChatHandler):
    FORMAT = "chatml"


class Qwen25VLChatHandler(MTMDChatHandler):
    FORMAT = "chatml"


class Gemma4ChatHandler(MTMDChatHandler):
    FORMAT = "gemma"


Llama3VisionAlpha = Llama3VisionAlphaChatHandler

__all__ = ["Gemma4ChatHandler", "Llama3VisionAlpha", "Llama3VisionAlphaChatHandler", "Llava15ChatHandler", "Llava16ChatHandler",
           "MTMDChatHandler", "MiniCPMv26ChatHandler", "MoondreamChatHandler", "NanoLlavaChatHandler", "ObsidianChatHandler",
           "Qwen25VLChatHandler"]
