// SPDX-License-Identifier: Apache-2.0

/** Store holds one value that changes, and tells who wants to know. */
export class Store<Value> {
  private readonly listeners = new Set<() => void>();

  constructor(private value: Value) {}

  readonly get = (): Value => this.value;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  set(value: Value): void {
    if (Object.is(value, this.value)) {
      return;
    }
    this.value = value;
    for (const listener of this.listeners) {
      listener();
    }
  }
}
