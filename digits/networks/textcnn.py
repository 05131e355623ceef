# Small character CNN: classifies texts by their characters, without a vocabulary.
#
# Designed for texts of up to 1,024 characters. The pixels of the input are the numbers of the characters, 0 for
# padding and unknown ones. They must not be changed: no mean subtraction, no augmentation.
# Recommended settings: Adam, learning rate 0.001, batches of 64, 10 epochs, no mean subtraction.
#
# paper: A smaller form of the networks of Zhang, Zhao and LeCun, 2015, “Character-level Convolutional Networks for
# paper: Text Classification”.
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=64 train_epochs=10 use_mean=none
# kinds: text-classification

from keras import layers

# The size of a character embedding.
EMBEDDING = 16


class UserModel(Tower):
    @model_property
    def inference(self):
        height, width, channels = self.input_shape
        characters = tf.cast(tf.reshape(self.x, [-1, height * width * channels]), tf.int32)
        net = layers.Embedding(256, EMBEDDING, name="characters")(characters)
        for number, filters in enumerate([64, 128], 1):
            net = layers.Conv1D(
                filters,
                5,
                padding="same",
                activation="relu",
                kernel_initializer="he_normal",
                name=f"conv{number}",
            )(net)
            net = layers.MaxPooling1D(4, padding="same")(net)
        # Global max pooling: the strongest response to each pattern anywhere in the text.
        net = layers.GlobalMaxPooling1D()(net)
        net = layers.Dropout(0.3)(net, training=self.is_training)
        return layers.Dense(self.nclasses, name="scores")(net)

    @model_property
    def loss(self):
        accuracy = digits.classification_accuracy(self.inference, self.y)
        self.summaries.append(tf.summary.scalar(accuracy.op.name, accuracy))
        return digits.classification_loss(self.inference, self.y)
