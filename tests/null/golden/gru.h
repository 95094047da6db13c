// gru(r, z, n; h): printed from its definition, do not edit.
struct Cell {
  static constexpr const char* name = "gru";
  static constexpr int num_states = 1;
  static constexpr int num_vectors = 0;
  static constexpr int num_slots = 4;
  static constexpr int num_products = 0;
  static constexpr int num_stages = 1;
  static constexpr int num_saved = 4;
  static constexpr int num_input_slots = 3;
  static constexpr int first_recurrent_slot = 1;
  static constexpr int num_recurrent_slots = 3;
  static constexpr int backward_reads_output = 1;
  static constexpr int32_t slot_input_gate[] = {2, 0, 1, -1};
  static constexpr int32_t slot_recurrent_gate[] = {-1, 0, 1, 2};
  static constexpr int32_t product_slot[] = {-1};
  static constexpr int32_t product_stage[] = {-1};
  template <class V> static PRNN_CELL void forward(Stage<0>, const V* slot, const V* state, const V* vector, V* operand, V* next, V* saved) {
    const V t0 = sigmoid(slot[1]);
    const V t1 = t0 * slot[3];
    const V t2 = slot[0] + t1;
    const V t3 = tanh(t2);
    const V t4 = sigmoid(slot[2]);
    const V t5 = state[0] - t3;
    const V t6 = t4 * t5;
    const V t7 = t3 + t6;
    next[0] = t7;
    saved[0] = t4;
    saved[1] = t3;
    saved[2] = slot[3];
    saved[3] = t0;
  }
  template <class V> static PRNN_CELL void backward(Stage<0>, const V* saved, const V* state, const V* vector, const V* d_next, const V* d_operand, V* d_slot, V* d_state, V* d_vector) {
    const V t0 = d_next[0] * saved[0];
    const V t1 = -t0;
    const V t2 = d_next[0] + t1;
    const V t3 = saved[1] * saved[1];
    const V t4 = V(1.0) - t3;
    const V t5 = t2 * t4;
    const V t6 = t5 * saved[2];
    const V t7 = V(1.0) - saved[3];
    const V t8 = saved[3] * t7;
    const V t9 = t6 * t8;
    const V t10 = state[0] - saved[1];
    const V t11 = d_next[0] * t10;
    const V t12 = V(1.0) - saved[0];
    const V t13 = saved[0] * t12;
    const V t14 = t11 * t13;
    const V t15 = t5 * saved[3];
    d_slot[0] = t5;
    d_slot[1] = t9;
    d_slot[2] = t14;
    d_slot[3] = t15;
    d_state[0] = t0;
  }
};
