// The search runs in a worker, and browsers refuse workers to pages from the file system: there, an empty frame does the work.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.hand(data, this);
      this.ready = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        inside.document.head.append(script);
      });
      this.ready.catch((event) => this.onerror?.(event));
    }

    postMessage(data) {
      this.ready.then(() => this.hand(data, this.frame.contentWindow), () => {});
    }

    hand(data, receiver) {
      const copy = structuredClone(data);
      setTimeout(() => receiver?.onmessage?.({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
