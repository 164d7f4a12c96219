// Browsers start no worker for a page that is opened from a file. There, the search's worker runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #loaded;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.documentElement.append(this.#frame);
      const inside = this.#frame.contentWindow;
      // What the worker's script calls to send a message, in place of the frame's own.
      inside.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data: copy })));
      };
      this.#loaded = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        inside.document.documentElement.append(script);
      });
    }

    set onmessage(listener) {
      this.addEventListener("message", listener);
    }

    postMessage(data) {
      const inside = this.#frame.contentWindow;
      const copy = structuredClone(data);
      this.#loaded.then(() => inside.dispatchEvent(new MessageEvent("message", { data: copy })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
