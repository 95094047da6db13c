// lstm(i, f, g, o; h, c): printed from its definition, do not edit.
struct Cell {
  static constexpr const char* name = "lstm";
  static constexpr int num_states = 2;
  static constexpr int num_vectors = 0;
  static constexpr int num_slots = 4;
  static constexpr int num_products = 0;
  static constexpr int num_stages = 1;
  static constexpr int num_saved = 6;
  static constexpr int num_input_slots = 4;
  static constexpr int first_recurrent_slot = 0;
  static constexpr int num_recurrent_slots = 4;
  static constexpr int backward_reads_output = 0;
  static constexpr int32_t slot_input_gate[] = {0, 1, 2, 3};
  static constexpr int32_t slot_recurrent_gate[] = {0, 1, 2, 3};
  static constexpr int32_t product_slot[] = {-1};
  static constexpr int32_t product_stage[] = {-1};
  template <class V> static PRNN_CELL void forward(Stage<0>, const V* slot, const V* state, const V* vector, V* operand, V* next, V* saved) {
    const V t0 = sigmoid(slot[3]);
    const V t1 = sigmoid(slot[1]);
    const V t2 = t1 * state[1];
    const V t3 = sigmoid(slot[0]);
    const V t4 = tanh(slot[2]);
    const V t5 = t3 * t4;
    const V t6 = t2 + t5;
    const V t7 = tanh(t6);
    const V t8 = t0 * t7;
    next[0] = t8;
    next[1] = t6;
    saved[0] = t0;
    saved[1] = t7;
    saved[2] = t4;
    saved[3] = t3;
    saved[4] = state[1];
    saved[5] = t1;
  }
  template <class V> static PRNN_CELL void backward(Stage<0>, const V* saved, const V* state, const V* vector, const V* d_next, const V* d_operand, V* d_slot, V* d_state, V* d_vector) {
    const V t0 = d_next[0] * saved[0];
    const V t1 = saved[1] * saved[1];
    const V t2 = V(1.0) - t1;
    const V t3 = t0 * t2;
    const V t4 = d_next[1] + t3;
    const V t5 = t4 * saved[2];
    const V t6 = V(1.0) - saved[3];
    const V t7 = saved[3] * t6;
    const V t8 = t5 * t7;
    const V t9 = t4 * saved[4];
    const V t10 = V(1.0) - saved[5];
    const V t11 = saved[5] * t10;
    const V t12 = t9 * t11;
    const V t13 = t4 * saved[3];
    const V t14 = saved[2] * saved[2];
    const V t15 = V(1.0) - t14;
    const V t16 = t13 * t15;
    const V t17 = d_next[0] * saved[1];
    const V t18 = V(1.0) - saved[0];
    const V t19 = saved[0] * t18;
    const V t20 = t17 * t19;
    const V t21 = t4 * saved[5];
    d_slot[0] = t8;
    d_slot[1] = t12;
    d_slot[2] = t16;
    d_slot[3] = t20;
    d_state[0] = V(0.0);
    d_state[1] = t21;
  }
};
